"""Two tiny tasks of lm-evaluation-harness with documents of their own: one writes, one chooses."""

from pathlib import Path
from typing import Any

import yaml

TASKS: dict[str, Any] = {
    "write": {
        "output_type": "generate_until",
        "doc_to_target": "{{ending}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 24},
        "metric_list": [{"metric": "exact_match"}],
    },
    "choose": {
        "output_type": "multiple_choice",
        "doc_to_target": 0,
        "doc_to_choice": "{{choices}}",
        "metric_list": [{"metric": "acc"}],
    },
}
DOCUMENTS = """\
{"context": "Once upon a", "ending": "!", "choices": ["time", "xq zv"]}
{"context": "The frog sat on a", "ending": "!", "choices": ["log by the pond", "of"]}
{"context": "They all lived", "ending": "!", "choices": ["happily ever after.", "."]}
"""


def write_tasks(home: Path) -> None:
    """The documents, and a file for each of TASKS."""
    (home / "documents.jsonl").write_text(DOCUMENTS)
    for name, task in TASKS.items():
        source = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(home / "documents.jsonl")}},
            "test_split": "test",
            "doc_to_text": "{{context}}",
        }
        (home / f"{name}.yaml").write_text(yaml.safe_dump({**source, **task}))
