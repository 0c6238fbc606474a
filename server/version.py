"""Which release this is."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """The installed version, or a remark that nothing is installed."""
    try:
        return version("soliton")
    except PackageNotFoundError:
        return "(a checkout that is not installed)"
