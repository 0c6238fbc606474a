"""Names of slot files: which of them name a file directly in a directory, on any system."""

_MOST_BYTES = 255
_FORBIDDEN = frozenset('/\\:*?"<>|')
# Look-alikes of a full stop and of slashes, the replacement character, the byte order mark.
_LOOK_ALIKE = frozenset("\uff0e\u2215\u2216\ufffd\ufeff")


def is_plain_name(name: str) -> bool:
    """As llama-server has it: printable, without a way out of the directory, and nothing that a
    file system would strip.
    """
    try:
        n_bytes = len(name.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False
    if not 0 < n_bytes <= _MOST_BYTES:
        return False
    if any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F or c in _FORBIDDEN | _LOOK_ALIKE for c in name):
        return False
    return name.strip(" ") == name and not name.endswith(".") and ".." not in name
