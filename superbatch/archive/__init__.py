"""Samples out of Zarr archives."""
