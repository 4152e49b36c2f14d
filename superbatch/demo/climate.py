"""The demo's own store: two 240-year simulations of the temperature over North America.

The fields are those of ``E1_north_america.nc`` and ``A1B_north_america.nc`` of the package
``iris-sample-data``: yearly means of the air temperature at 1.5 m, 1860 to 2099, of the Met Office
Unified Model 6.05 under two emission scenarios, in a calendar of 360 days. Both scenarios share one
simulation of the past: they are equal up to 2009.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import xarray as xr

from superbatch.demo.task import Task, count
from superbatch.errors import SuperbatchError

NAME = "air_temperature"
SCENARIOS = ("E1", "A1B")
CHUNKS = {"scenario": 1, "time": 24, "latitude": 37, "longitude": 49}
YEARS_BEFORE = 10
FIRST_HELD_OUT = 2050


def climate_task(folder: Path) -> Task:
    """The year after ten years, learned on 1860 to 2049 and judged on 2050 to 2099."""
    path = folder / "north_america.zarr"
    write_store(path)
    array = open_store(path)
    window = {
        "scenario": 1,
        "time": YEARS_BEFORE + 1,
        "latitude": array.sizes["latitude"],
        "longitude": array.sizes["longitude"],
    }
    held = array["time"].dt.year.values >= FIRST_HELD_OUT
    first = int(held.argmax())
    train, heldout = array.isel(time=slice(0, first)), array.isel(time=slice(first, None))
    return Task(
        title=f"temperature over North America, a year from the {YEARS_BEFORE} before",
        where=str(path),
        train=train,
        heldout=heldout,
        window=window,
        time="time",
        split=(
            f"{_years(train)} for training: {count(train, window)} windows",
            f"{_years(heldout)} held out: {count(heldout, window)} windows",
        ),
        unit="K",
        chunks=dict(CHUNKS),
    )


def open_store(path: Path) -> xr.DataArray:
    """The temperature in K, by scenario, time, latitude and longitude; nothing is read."""
    dataset: xr.Dataset = xr.open_zarr(path, chunks=None, consolidated=False)
    return dataset[NAME]


def write_store(path: Path) -> None:
    """Write both scenarios as one Zarr array, unless that was done before.

    The store is written beside its place and then renamed, so that it is there whole or not at all,
    also when two processes make it at the same time.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _read_scenarios().to_zarr(
            unfinished,
            zarr_format=3,
            consolidated=False,
            encoding={NAME: {"chunks": tuple(CHUNKS.values())}},
        )
        try:
            unfinished.rename(path)
        except OSError:
            # someone else was faster; anything else that is in the way is an error
            if not path.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _read_scenarios() -> xr.Dataset:
    try:
        import cftime  # noqa: F401  the calendar has 360 days
        import iris_sample_data
        import netCDF4  # noqa: F401
    except ImportError as error:
        raise SuperbatchError(
            f"the demo's data needs the package {error.name}: run  pip install 'superbatch[demo]'"
        ) from error

    def read(scenario: str) -> xr.DataArray:
        path = Path(iris_sample_data.path) / f"{scenario}_north_america.nc"
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            field = dataset[NAME].reset_coords(drop=True).load().drop_encoding()
        return field

    both = xr.concat([read(name) for name in SCENARIOS], dim="scenario")
    # names as an attribute: fixed-length strings have no place in the Zarr v3 specification yet
    both.attrs["scenario"] = list(SCENARIOS)
    return both.to_dataset(name=NAME)


def _years(array: xr.DataArray) -> str:
    years = array["time"].dt.year.values
    return f"{years[0]}–{years[-1]}"
