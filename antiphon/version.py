"""The version of the client and of the service, which pyproject.toml reads, too."""

__version__ = "1.0.0"
