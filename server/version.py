"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The installed version, or a note that the package is not installed."""
    try:
        return version("soliton")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"
