"""Every error a user can cause, as one tree; the command line prints them and exits 2.

GristmillError
├── InputError          a text or file that cannot be read or encoded as asked
│   ├── BadFileError        a file of a corpus cannot be read to its end
│   └── BadDocumentError    a record of a corpus gives no document, and the job says to fail
├── TokenizerError      a tokenizer that cannot be loaded
│   ├── TokenizerFormatError     the file is damaged, hostile or of no known format
│   └── UnsupportedTokenizerError  understood, but the engine asked for cannot run it exactly
├── ConfigError         an option that is unknown, out of range or contradictory
├── RunError            a run that cannot go on, or a run folder that does not hold what it should
│   ├── ResumeError         a run folder that was made by another job, or is in use
│   └── LedgerError         what went in does not equal what came out
└── MissingPackageError an optional package is needed and not installed
"""


class GristmillError(Exception):
    """Root of all errors a user can cause and mend."""


class InputError(GristmillError):
    """A text or file cannot be read or encoded as asked."""


class BadFileError(InputError):
    """A file of a corpus cannot be read to its end; what was read before that stands."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.is_passing = False
        """A store went on failing for reasons that should pass: the file may be sound."""


class BadDocumentError(InputError):
    """A record of a corpus gives no document, and the job says to fail."""


class TokenizerError(GristmillError):
    """A tokenizer cannot be loaded."""


class TokenizerFormatError(TokenizerError):
    """A tokenizer file is damaged, hostile or of no known format."""


class UnsupportedTokenizerError(TokenizerError):
    """A tokenizer is understood, but the engine asked for cannot run it exactly."""


class ConfigError(GristmillError):
    """An option is unknown, out of range or contradictory."""


class RunError(GristmillError):
    """A run cannot go on, or a run folder does not hold what it should."""


class ResumeError(RunError):
    """A run folder was made by another job, or is in use."""


class LedgerError(RunError):
    """What went in does not equal what came out."""


class MissingPackageError(GristmillError):
    """An optional package is needed and not installed."""
