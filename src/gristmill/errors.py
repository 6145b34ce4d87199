"""Every error a user can cause, as one tree; the command line prints them and exits 2.

GristmillError
├── InputError          a text or file that cannot be read or encoded as asked
├── TokenizerError      a tokenizer that cannot be loaded
│   ├── TokenizerFormatError     the file is damaged, hostile or of no known format
│   └── UnsupportedTokenizerError  understood, but the engine asked for cannot run it exactly
├── ConfigError         an option that is unknown, out of range or contradictory
└── MissingPackageError an optional package is needed and not installed
"""


class GristmillError(Exception):
    """Root of all errors a user can cause and mend."""


class InputError(GristmillError):
    """A text or file cannot be read or encoded as asked."""


class TokenizerError(GristmillError):
    """A tokenizer cannot be loaded."""


class TokenizerFormatError(TokenizerError):
    """A tokenizer file is damaged, hostile or of no known format."""


class UnsupportedTokenizerError(TokenizerError):
    """A tokenizer is understood, but the engine asked for cannot run it exactly."""


class ConfigError(GristmillError):
    """An option is unknown, out of range or contradictory."""


class MissingPackageError(GristmillError):
    """An optional package is needed and not installed."""
