"""What every engine has in common, of whatever kind."""


class Engine:
    """A model in memory, built as `cls(config, weights)` and shared by all requests.

    Each kind has a subclass in `models/<kind>/base.py` with its calls, and a dataclass of
    `capabilities` that an engine sets at the latest in its constructor. Methods that an engine may
    leave out have defaults, so that callers need not ask for them first.
    """

    def release_memory(self) -> None:
        """Gives back memory that is kept between requests; the next request takes it again.

        Blocking, and safe at any time.
        """
