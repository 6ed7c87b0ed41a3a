"""A broker that takes the metrics of clients, and what its endpoint shows of them."""

from __future__ import annotations

import urllib.request

from tests.ottla_process import OttlaProcess

from .support import wait_until


class Receiver:
    """A broker that takes metrics, and its endpoint."""

    def __init__(self, process: OttlaProcess) -> None:
        self.process = process
        self.bootstrap = process.bootstrap

    def series(self, client_id: str) -> dict[str, float]:
        """The values of one client, by name and labels without its ids."""
        found = {}
        for line in self.scrape().splitlines():
            name, _, rest = line.partition("{")
            if f'client_id="{client_id}"' in rest:
                labels, _, value = rest.rpartition("} ")
                own = [each for each in labels.split(",") if not each.startswith(("client_id", "client_instance_id"))]
                found[f"{name}{{{','.join(own)}}}" if own else name] = float(value)
        return found

    def scrape(self) -> str:
        log = self.process.log_path.read_text()
        url = log.rpartition("Serving metrics at ")[2].split()[0]
        with urllib.request.urlopen(url, timeout=30) as response:
            text: str = response.read().decode()
        return text

    def wait_for(self, client_id: str, *names: str) -> dict[str, float]:
        """Wait until the client has pushed metrics whose names and labels begin so."""

        def has_pushed() -> bool:
            found = self.series(client_id)
            return all(any(each.startswith(name) for each in found) for name in names)

        wait_until(has_pushed, f"the metrics of {client_id}")
        return self.series(client_id)
