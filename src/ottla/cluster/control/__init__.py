"""Everything between a broker and the active controller (KIP-631, KIP-590).

- `requests`: the requests of brokers, decided by the active controller.
- `../controller_channel.py`: how a broker sends them, also after another controller became active.
"""
