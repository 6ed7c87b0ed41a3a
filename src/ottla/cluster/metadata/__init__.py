"""The metadata log of this node and the image that follows it.

Reading order: `options`, `batches`, `snapshots`, `loading`, `opening`, `log` (operations of the controller, publication
of images), `snapshotting`.
"""
