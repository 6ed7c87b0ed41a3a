"""The cluster's metadata as one immutable value, and how records change it.

Reading order: image (the state), delta (applies records to an image), snapshot (encodes an image as records), features
(supported feature levels, and the record versions that they allow). No I/O, no clock.
"""
