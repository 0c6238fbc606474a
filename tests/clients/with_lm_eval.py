"""lm-evaluation-harness against a live server, once with the model's tokenizer here and once with
the server's; prints the samples as one line of JSON.

usage: python with_lm_eval.py BASE_URL MODEL TOKENIZER TASKS TASK…

TOKENIZER is a model's directory, or "" to use only the server's; TASKS is a folder of tasks.
"""

import json
import sys
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

url, model, tokenizer, tasks, *names = sys.argv[1:]
manager = TaskManager(include_path=tasks, include_defaults=False)


def samples(**options: Any) -> Any:
    server = {"base_url": f"{url}/completions", "model": model, "max_retries": 1}
    answer = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={**server, "max_length": 512, **options},
        tasks=names,
        task_manager=manager,
        log_samples=True,
        bootstrap_iters=0,
    )
    return answer["samples"]


own = samples(tokenizer_backend="huggingface", tokenizer=tokenizer) if tokenizer else None
remote = samples(tokenizer_backend="remote", auth_token="key", batch_size=2)
print(json.dumps({"own": own, "remote": remote}, default=str))
