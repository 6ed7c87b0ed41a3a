"""The verdict of the example: the pipeline's results, compared with pandas' results from the same files."""

from __future__ import annotations

import pandas as pd
from flights_data import Data
from flights_replay import Replay, Results

SUMS = ["flights", "departed", "delay_minutes", "longest", "seat_minutes_lost", "with_weather"]


def compare(results: Results, expected: pd.DataFrame) -> list[str]:
    """Describe the first differences between the pipeline's numbers and pandas', a sentence each."""
    got = pd.DataFrame(list(results.delays.values()))
    got["time_hour"] = pd.to_datetime(got["hour"], utc=True)
    got = got.set_index(["carrier", "time_hour"]).reindex(expected.index)
    wrong = []
    for column in expected.columns:
        ours = pd.to_numeric(got[column]) if column in got else pd.Series(float("nan"), expected.index)
        theirs = expected[column].astype(float)
        same = (ours == theirs) if column in SUMS else ((ours - theirs).abs() < 1e-9 * theirs.abs().clip(lower=1))
        differs = ~(same | (ours.isna() & theirs.isna()))
        wrong += [
            f"{column} of {at[0]} at {at[1]:%d %b %H:%M} is {ours[at]}, pandas has {theirs[at]}"
            for at in expected.index[differs][:3]
        ]
    return wrong


def check(
    data: Data, replay: Replay, results: Results, lags: dict[str, int | None], minutes: int
) -> tuple[list[tuple[str, bool]], list[str]]:
    """The claims, each with whether it holds; and a sentence for each of the first differences from pandas."""
    expected = data.expected()
    wrong = compare(results, expected)
    extreme = data.extreme(minutes)
    hours = extreme["time_hour"].dt.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    late = set(zip(hours, extreme["carrier"], extreme["flight"], strict=True))
    claims = [
        (f"all {replay.acknowledged:,} events were acknowledged", not replay.failures),
        (
            f"{len(expected):,} results, of each airline and hour, equal pandas' results",
            not wrong and len(results.delays) == len(expected),
        ),
        (
            f"{len(late):,} flights were {minutes // 60} hours late, and there is an alert for each",
            results.alerts.keys() == late,
        ),
        ("no result and no alert came twice", results.doubled == 0),
        (
            "both pipelines committed all that they processed to their groups",
            bool(lags) and all(behind == 0 for behind in lags.values()),
        ),
    ]
    return claims, wrong


def means(results: Results) -> list[tuple[str, int, float]]:
    """Airline, flights and mean delay in minutes, the largest first."""
    rows = [
        (name, flights, minutes / max(1, departed))
        for name, (flights, departed, minutes) in list(results.airlines.items())
    ]
    return sorted(rows, key=lambda row: -row[2])


def weekly(data: Data, results: Results) -> list[float]:
    """Mean delay of each week, from the results."""
    rows = pd.DataFrame(list(results.delays.values()))
    weeks = (pd.to_datetime(rows["hour"], utc=True) - data.flights["time_hour"].min()).dt.days // 7
    sums = rows[["delay_minutes", "departed"]].fillna(0).groupby(weeks).sum()
    return list(sums["delay_minutes"] / sums["departed"].clip(lower=1))
