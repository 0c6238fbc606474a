"""Chat templates that write calls as the families in use do, and their tags."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from .call_templates import EACH, HERMES, with_calls

THOUGHT = (
    "{%- if message.reasoning_content %}"
    "{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}"
)
_TEXT = "(value if value is string else value | tojson)"
_ARGUMENTS = "{%- for key, value in f.arguments.items() %}"
_IF_CALLS = "{%- if message.tool_calls %}"
_EVERY = EACH.replace(" or []", "")

# GLM 4.5 to 5: the name, then a pair of tags per argument.
GLM = with_calls(
    THOUGHT + EACH + "{{- '\\n<tool_call>' + f.name + '\\n' }}" + _ARGUMENTS +
    "{{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' + " + _TEXT + " + '</arg_value>\\n' }}"
    "{%- endfor %}{{- '</tool_call>' }}{%- endfor %}"
)  # fmt: skip
# Qwen3-Coder and Qwen 3.5.
QWEN = with_calls(
    THOUGHT + EACH + "{{- '\\n' if not loop.first }}{{- '<tool_call>\\n<function=' + f.name }}"
    "{{- '>\\n' }}" + _ARGUMENTS + "{{- '<parameter=' + key + '>\\n' + " + _TEXT +
    " + '\\n</parameter>\\n' }}{%- endfor %}{{- '</function>\\n</tool_call>' }}{%- endfor %}"
)  # fmt: skip
# Seed-OSS: the same, between other tags and without line breaks around values.
SEED = (
    QWEN.replace("tool_call>", "seed:tool_call>")
    .replace("+ '>\\n' + (value", "+ '>' + (value")
    .replace("'\\n</parameter>", "'</parameter>")
    .replace("think>", "seed:think>")
)


def _bars(text: str) -> str:
    """DeepSeek's tags hold a wide bar and a low line, here written as ! and ~."""
    return text.replace("!", "\uff5c").replace("~", "\u2581")


# DeepSeek V3.2: all calls between one pair of tags; the tags tell texts from other values.
DEEPSEEK = with_calls(_bars(
    THOUGHT + _IF_CALLS + "{{- '\\n\\n<!DSML!function_calls>\\n' }}" + _EVERY +
    "{{- '<!DSML!invoke name=\"' + f.name + '\">\\n' }}" + _ARGUMENTS +
    "{{- '<!DSML!parameter name=\"' + key + '\" string=\"' }}"
    "{{- ('true' if value is string else 'false') + '\">' }}{{- " + _TEXT + " }}"
    "{{- '</!DSML!parameter>\\n' }}{%- endfor %}{{- '</!DSML!invoke>\\n' }}{%- endfor %}"
    "{{- '</!DSML!function_calls>' }}{%- endif %}"
))  # fmt: skip
# DeepSeek V3.1: name and JSON between tokens.
DEEPSEEK_JSON = with_calls(_bars(
    THOUGHT + _IF_CALLS + "{{- '<!tool~calls~begin!>' }}" + _EVERY +
    "{{- '<!tool~call~begin!>' + f.name + '<!tool~sep!>' + f.arguments | tojson }}"
    "{{- '<!tool~call~end!>' }}{%- endfor %}{{- '<!tool~calls~end!>' }}{%- endif %}"
))  # fmt: skip
# DeepSeek V3.1 as it is published: it tells of no tools, wants arguments as text, and closes the
# reasoning in the prompt unless it is asked to think.
DEEPSEEK_V31 = _bars(
    "{%- set ns = namespace(system='', follows_user=false) %}{%- for message in messages %}"
    "{%- if message.role == 'system' %}{%- set ns.system = ns.system + message.content %}"
    "{%- endif %}{%- endfor %}{{- ns.system }}{%- for message in messages %}"
    "{%- if message.role == 'user' %}{%- set ns.follows_user = true %}"
    "{{- '<!User!>' + message.content }}{%- elif message.role == 'tool' %}"
    "{{- '<!tool~output~begin!>' + message.content + '<!tool~output~end!>' }}"
    "{%- elif message.role == 'assistant' %}"
    "{{- '<!Assistant!></think>' if ns.follows_user }}{%- set ns.follows_user = false %}"
    "{{- message.content or '' }}" + _IF_CALLS + "{{- '<!tool~calls~begin!>' }}" + _EVERY +
    "{{- '<!tool~call~begin!>' + f.name + '<!tool~sep!>' + f.arguments + '<!tool~call~end!>' }}"
    "{%- endfor %}{{- '<!tool~calls~end!>' }}{%- endif %}{{- '<|end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt and ns.follows_user %}"
    "{{- '<!Assistant!>' + ('<think>' if thinking else '</think>') }}{%- endif %}"
)  # fmt: skip
# Gemma 4: objects with bare keys and their own quotes.
GEMMA = (
    "{%- macro written(value) %}{%- if value is string %}{{- '<|\"|>' + value + '<|\"|>' }}"
    "{%- elif value is boolean or value is none %}{{- value | tojson }}"
    "{%- elif value is mapping %}{{- '{' }}{%- for key, inner in value | dictsort %}"
    "{{- ',' if not loop.first }}{{- key + ':' + written(inner) }}{%- endfor %}{{- '}' }}"
    "{%- elif value is sequence %}{{- '[' }}{%- for inner in value %}"
    "{{- ',' if not loop.first }}{{- written(inner) }}{%- endfor %}{{- ']' }}"
    "{%- else %}{{- value }}{%- endif %}{%- endmacro %}"
) + with_calls(
    "{%- if message.reasoning_content %}"
    "{{- '<|channel>thought\\n' + message.reasoning_content + '\\n<channel|>' }}{%- endif %}" +
    EACH + "{{- '<|tool_call>call:' + f.name }}"
    "{{- written(f.arguments) if f.arguments is mapping else '{' + f.arguments + '}' }}"
    "{{- '<tool_call|>' }}{%- endfor %}"
)  # fmt: skip
# Mistral since v11: a tag per call, with and without the id of the call.
MISTRAL_V11 = with_calls(
    EACH + "{{- '[TOOL_CALLS]' + f.name + '[CALL_ID]' + call.id + '[ARGS]' }}"
    "{{- f.arguments | tojson }}{%- endfor %}"
)
MISTRAL_V13 = with_calls(
    "{%- if message.reasoning_content %}"
    "{{- '[THINK]' + message.reasoning_content + '[/THINK]' }}{%- endif %}" +
    EACH + "{{- '[TOOL_CALLS]' + f.name + '[ARGS]' + f.arguments | tojson }}{%- endfor %}"
)  # fmt: skip
# Granite 3: the template says how to call, but writes no calls.
GRANITE_3 = (
    "{%- if tools %}{{- '<|turn|>system\\nCall with <|tool_call|> followed by a JSON list of "
    "tools used.' + tools | tojson + '<|end|>' }}{%- endif %}{%- for message in messages %}"
    "{{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|turn|>assistant\\n' }}{%- endif %}"
)
# Granite 4 writes Hermes' format.
GRANITE_4 = HERMES
# gpt-oss: messages in channels, one call per reply.
HARMONY = (
    "{%- if tools %}{{- '<|start|>developer<|message|>' + tools | tojson + '<|end|>' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.tool_calls %}"
    "{%- if message.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' }}"
    "{{- message.thinking + '<|end|>' }}{%- endif %}{%- set f = message.tool_calls[0].function %}"
    "{{- '<|start|>assistant to=functions.' + f.name + '<|channel|>commentary json<|message|>' }}"
    "{{- f.arguments | tojson + '<|call|>' }}{%- elif message.role == 'assistant' %}"
    "{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}"
    "{%- else %}{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)


class Family(NamedTuple):
    template: str
    style: str
    open_thought: str
    close_thought: str
    tags: tuple[str, ...]
    """That may be tokens."""
    call_tags: tuple[str, ...] = ()
    """Some that a forced call holds."""

    as_text: bool = False
    """Whether it wants the arguments as JSON, not as an object."""

    def arguments(self, given: Mapping[str, Any]) -> Any:
        return json.dumps(given, ensure_ascii=False) if self.as_text else given


_THINK = ("<think>", "</think>")
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_CHANNEL = ("<|channel>thought\n", "\n<channel|>")
_ANALYSIS = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")

FAMILIES = {
    "glm": Family(
        GLM, "tagged", *_THINK,
        (*_THINK, *_TOOL_CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>", "</arg_value>"),
    ),
    "qwen3-coder": Family(
        QWEN, "tagged", *_THINK, (*_THINK, *_TOOL_CALL),
        ("<tool_call>\n<function=weather>\n<parameter=city>\n", "\n</parameter>\n"),
    ),
    "seed": Family(
        SEED, "tagged", "<seed:think>", "</seed:think>",
        ("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
        ("<seed:tool_call>\n<function=weather>\n<parameter=city>",),
    ),
    "deepseek": Family(
        DEEPSEEK, "tagged", *_THINK, _THINK,
        (_bars('<!DSML!invoke name="weather">\n<!DSML!parameter name="city" string="true">'),
         'name="days" string="false">'),
    ),
    "deepseek-json": Family(
        DEEPSEEK_JSON, "named", *_THINK,
        (*_THINK, *map(_bars, ("<!tool~calls~begin!>", "<!tool~calls~end!>", "<!tool~sep!>",
                               "<!tool~call~begin!>", "<!tool~call~end!>"))),
        (_bars("<!tool~call~begin!>weather<!tool~sep!>{"),),
    ),
    "deepseek-v3.1": Family(
        DEEPSEEK_V31, "named", *_THINK,
        (*_THINK, *map(_bars, ("<!tool~calls~begin!>", "<!tool~calls~end!>", "<!tool~sep!>",
                               "<!tool~call~begin!>", "<!tool~call~end!>"))),
        (_bars("<!tool~calls~begin!><!tool~call~begin!>weather<!tool~sep!>{"),), as_text=True,
    ),
    "gemma": Family(
        GEMMA, "gemma", *_CHANNEL,
        ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
        ('<|tool_call>call:weather{city:<|"|>', '<|"|>,days:'),
    ),
    "mistral-v11": Family(
        MISTRAL_V11, "mistral", "", "", ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
        ("[TOOL_CALLS]weather[CALL_ID]", "[ARGS]{"),
    ),
    "mistral-v13": Family(
        MISTRAL_V13, "mistral", "[THINK]", "[/THINK]",
        ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"), ("[TOOL_CALLS]weather[ARGS]{",),
    ),
    "granite-4": Family(
        GRANITE_4, "hermes", "", "", _TOOL_CALL, ('<tool_call>\n{"name": "weather"',),
    ),
    "granite-3": Family(
        GRANITE_3, "hermes", "", "", ("<|tool_call|>",), ('<|tool_call|>[{"name": "weather"',),
    ),
    "harmony": Family(
        HARMONY, "harmony", *_ANALYSIS,
        ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>",
         "<|return|>"),
        ("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{",),
    ),
}  # fmt: skip
