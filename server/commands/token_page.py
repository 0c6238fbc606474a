"""`soliton complete --html`: one page of the tokens of a completion, to be read without Soliton.

Owns the page: its text, table and data. Nothing in it runs, and nothing comes from elsewhere; the
Content-Security-Policy says so, too. The numbers are once more in a block of JSON for programs.
Knows the engine's records; knows neither options nor files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from engine import TokenRecord

from .token_page_style import STYLE
from .token_text import cells, percent, quoted

# The least probability of a class, and what the legend says. The first class looks like plain text.
_CLASSES = (
    (0.5, "50 % or more"),
    (0.2, "20 to 50 %"),
    (0.05, "5 to 20 %"),
    (0.01, "1 to 5 %"),
    (0.0, "below 1 %"),
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LONGEST_TITLE = 60


@dataclass(frozen=True)
class Completion:
    """What the page shows."""

    prompt: str
    text: str
    tokens: Sequence[TokenRecord]
    ended_by: Sequence[TokenRecord]
    """Tokens that ended the text and are not part of it."""
    end: str | None
    about: Mapping[str, str | int]
    """Model, version and so on, in the order in which they are shown."""
    settings: Mapping[str, Any]
    command: str
    """What generates it again."""


def page(completion: Completion) -> str:
    """The whole page."""
    title = completion.prompt.strip().replace("\n", " ")
    title = title if len(title) <= _LONGEST_TITLE else f"{title[:_LONGEST_TITLE]}…"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Soliton">
<title>{_text(title)} · Soliton</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{_text(title) or "A completion"}</h1>
<p class="lead">{_text(_lead(completion))}</p>
{_legend()}
<section aria-label="Prompt and completion">
<div class="text"><span class="prompt" title="prompt">{_text(completion.prompt)}</span>\
<span id="completion">{_marked(completion)}</span></div>
</section>
<section>
<h2>Tokens</h2>
{_table(completion)}
</section>
<section>
<h2>How it was made</h2>
{_facts(completion)}
<h3>To generate it again</h3>
<pre><code>{_text(completion.command)}</code></pre>
</section>
</main>
<script type="application/json" id="data">{_data(completion)}</script>
</body>
</html>
"""


def class_of(p: float) -> int:
    """Which class of the legend a probability belongs to: 0 is the most likely."""
    return next(index for index, (least, _) in enumerate(_CLASSES) if p >= least)


def _text(text: str) -> str:
    # A parser takes a bare carriage return for a line feed.
    return escape(text, quote=True).replace("\r", "&#13;").replace("\0", "\ufffd")


def _lead(completion: Completion) -> str:
    n, model = len(completion.tokens), completion.about["model"]
    tokens = f"{n} token{'' if n == 1 else 's'}"
    return f"{tokens} by {model}. The stronger its mark, the less likely the model thought a token."


def _legend() -> str:
    items = (
        f'<li><span class="t c{index}">{_text(words)}</span></li>'
        for index, (_, words) in enumerate(_CLASSES)
    )
    return (
        '<ul class="legend" aria-label="How likely the model thought each token">'
        f"{''.join(items)}</ul>"
    )


def _marked(completion: Completion) -> str:
    """Each cell of the text, linked to the row of its first token."""
    left, parts = completion.text, []
    for cell in cells([token.token_bytes for token in completion.tokens]):
        shown, left = left[: len(cell.text)], left[len(cell.text) :]
        if not shown:
            continue
        tokens = [completion.tokens[index] for index in cell.tokens]
        least = min(tokens, key=lambda token: token.p_raw)
        line = " line" if "\n" in shown else ""
        parts.append(
            f'<a class="t c{class_of(least.p_raw)}{line}" href="#t{cell.tokens[0] + 1}" '
            f'title="{_text(_hover(tokens))}">{_text(shown)}</a>'
        )
    return "".join(parts)


def _hover(tokens: Iterable[TokenRecord]) -> str:
    lines = []
    for token in tokens:
        lines.append(f"{quoted(token.token_bytes)}: {percent(token.p_raw)}")
        lines.append(f"drawn with {percent(token.p_sampled)}, number {token.rank + 1} of the model")
        lines += [
            f"{quoted(other.token_bytes)}: {percent(other.p_raw)}"
            for other in token.top
            if other.token_id != token.token_id
        ]
    return "\n".join(lines)


def _table(completion: Completion) -> str:
    rows = [_row(n, token, "") for n, token in enumerate(completion.tokens, 1)]
    n_shown = len(rows)
    rows += [
        _row(n_shown + n, token, ' class="end"') for n, token in enumerate(completion.ended_by, 1)
    ]
    body = "\n".join(rows)
    return f"""<div class="scroll"><table>
<thead><tr><th scope="col">#</th><th scope="col">token</th><th scope="col">p</th>\
<th scope="col">drawn</th><th scope="col">logprob</th><th scope="col">rank</th>\
<th scope="col">the most probable others</th></tr></thead>
<tbody>
{body}
</tbody>
</table></div>
<p class="note">p: the model's own probability; logprob: its logarithm. drawn: the probability in \
the distribution that the token was drawn from, after all samplers. rank: 1 is the model's first \
choice. A token in grey ended the text.</p>"""


def _row(n: int, token: TokenRecord, attributes: str) -> str:
    others = " ".join(
        f"<code>{_text(quoted(other.token_bytes))} {other.p_raw:.3f}</code>"
        for other in token.top
        if other.token_id != token.token_id
    )
    name = quoted(token.token_bytes) if token.token_bytes else f"token {token.token_id}"
    return (
        f'<tr id="t{n}"{attributes}><td>{n}</td>'
        f'<td><code class="t c{class_of(token.p_raw)}">{_text(name)}</code></td>'
        f"<td>{token.p_raw:.4f}</td><td>{token.p_sampled:.4f}</td><td>{token.logprob:.3f}</td>"
        f"<td>{token.rank + 1}</td><td>{others}</td></tr>"
    )


def _facts(completion: Completion) -> str:
    facts = {**completion.about, "ended_by": str(completion.end).replace("_", " ")}
    settings = ", ".join(f"{name} {value}" for name, value in completion.settings.items())
    facts["settings"] = settings or "none: the model's own distribution"
    rows = (
        f"<dt>{_text(name.replace('_', ' '))}</dt><dd>{_text(str(value))}</dd>"
        for name, value in facts.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _data(completion: Completion) -> str:
    """Everything once more, as JSON that ends no script."""
    content = {
        "prompt": completion.prompt,
        "completion": completion.text,
        **completion.about,
        "end": completion.end,
        "settings": dict(completion.settings),
        "command": completion.command,
        "tokens": [_entry(token) for token in completion.tokens],
        "ended_by": [_entry(token) for token in completion.ended_by],
    }
    text = json.dumps(content)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _entry(token: TokenRecord) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "bytes": list(token.token_bytes),
        "p_raw": token.p_raw,
        "p_sampled": token.p_sampled,
        "logprob": token.logprob,
        "rank": token.rank,
        "entropy": token.entropy,
        "alternatives": [
            {
                "token_id": other.token_id,
                "bytes": list(other.token_bytes),
                "p_raw": other.p_raw,
                "p_sampled": other.p_sampled,
            }
            for other in token.top
        ],
    }
