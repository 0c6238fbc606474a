"""Chat templates that write tool calls in many ways, modelled on families in use."""

_HEAD = """
{%- if tools %}{{- '<|turn|>system\\nTools:' }}
{%- for tool in tools %}{{- '\\n' + tool.function | tojson }}{%- endfor %}{{- '<|end|>' }}
{%- endif %}
"""
_TURNS = """
{%- for message in messages %}
    {%- if message.role == 'tool' %}{{- '<|turn|>tool\\n' + message.content + '<|end|>' }}
    {%- elif message.role != 'assistant' %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>' }}
    {%- else %}{{- '<|turn|>assistant\\n' }}{{- message.content or '' }}
        CALLS{{- '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn|>assistant\\n' }}{%- endif %}
"""


def with_calls(calls: str) -> str:
    return _HEAD + _TURNS.replace("CALLS", calls.strip())


EACH = "{%- for call in message.tool_calls or [] %}{%- set f = call.function %}"

# Arguments as JSON after the name in a tag, as functionary-v3.1 writes them.
FUNCTION_TAG = with_calls(
    EACH + "{{- '<function=' + f.name + '>' }}"
    "{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{- '</function>' }}"
    "{%- endfor %}"
)
# Objects in a list between tags, each with its id last, as Apriel writes them.
TAGGED_LIST = with_calls(
    "{%- if message.tool_calls %}{{- '<tool_calls>[' }}" + EACH.replace(" or []", "") +
    "{{- '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson }}"
    "{{- ', \"id\": \"' + call.id + '\"}' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}"
    "{%- endfor %}{{- ']</tool_calls>' }}{%- endif %}"
)  # fmt: skip
# Objects in lines between one pair of tags, as MiniMax M1 writes them.
TAGGED_LINES = with_calls(
    "{%- if message.tool_calls %}{{- '<tool_calls>\\n' }}" + EACH.replace(" or []", "") +
    "{{- '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson + '}\\n' }}"
    "{%- endfor %}{{- '</tool_calls>' }}{%- endif %}"
)  # fmt: skip
# Objects in a list after a word, as firefunction-v2 writes them.
WORD_AND_LIST = with_calls(
    "{%- if message.tool_calls %}{{- ' functools[' }}" + EACH.replace(" or []", "") +
    "{{- '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments | tojson + '}' }}"
    "{%- if not loop.last %}{{- ', ' }}{%- endif %}{%- endfor %}{{- ']' }}{%- endif %}"
)  # fmt: skip
# The name between two tags and a fenced object, both between two more tags.
SECTIONS = with_calls(
    "{%- if message.tool_calls %}{{- '<calls>' }}" + EACH.replace(" or []", "") +
    "{{- '<call>function<sep>' + f.name + '\\n```json\\n' }}"
    "{{- f.arguments if f.arguments is string else f.arguments | tojson }}{{- '\\n```</call>' }}"
    "{%- if not loop.last %}{{- '\\n' }}{%- endif %}{%- endfor %}{{- '</calls>' }}{%- endif %}"
)  # fmt: skip
# A channel per call, the first of which the prompt opens, as functionary-v3.2 writes them.
CHANNELS = """
{%- if tools %}{{- '<|turn|>system\\nTools:' }}
{%- for tool in tools %}{{- '\\n' + tool.function | tojson }}{%- endfor %}{{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'assistant' %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>' }}
    {%- else %}{{- '<|turn|>assistant\\n' }}
        {%- if message.content %}{{- '>>>all\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '>>>' + call.function.name + '\\n' + call.function.arguments }}
        {%- endfor %}{{- '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn|>assistant\\n>>>' }}{%- endif %}
"""
# A list between the tags that other families put around one object.
HERMES_LIST = with_calls(
    "{%- if message.tool_calls %}{{- '<tool_call>' }}"
    "{%- set ns = namespace(calls=[]) %}{%- for call in message.tool_calls %}"
    "{%- set ns.calls = ns.calls + [{'name': call.function.name, "
    "'arguments': call.function.arguments}] %}{%- endfor %}"
    "{{- ns.calls | tojson }}{{- '</tool_call>' }}{%- endif %}"
)
HERMES = with_calls(
    EACH + "{{- '\\n' if not loop.first }}{{- '<tool_call>\\n{\"name\": \"' + f.name }}"
    "{{- '\", \"arguments\": ' + f.arguments | tojson + '}\\n</tool_call>' }}{%- endfor %}"
)
PARAMETERS = with_calls(
    EACH + "{{- '<tool_call>\\n<function=' + f.name + '>\\n' }}"
    "{%- for key, value in f.arguments.items() %}"
    "{{- '<parameter=' + key + '>\\n' + value | string + '\\n</parameter>\\n' }}{%- endfor %}"
    "{{- '</function>\\n</tool_call>' }}{%- endfor %}"
)
# Calls as Python between tags, as MiniCPM writes them.
PYTHON = with_calls(
    "{%- if message.tool_calls %}{{- '<|calls|>\\n```python\\n' }}"
    + EACH.replace(" or []", "")
    + "{{- f.name + '(' }}{%- for key, value in f.arguments.items() %}"
    "{{- key + '=' + value | tojson }}{%- endfor %}{{- ')\\n' }}{%- endfor %}"
    "{{- '```\\n<|calls_end|>' }}{%- endif %}"
)

READABLE = {
    "function-tag": FUNCTION_TAG, "tagged-list": TAGGED_LIST, "tagged-lines": TAGGED_LINES,
    "word-and-list": WORD_AND_LIST, "sections": SECTIONS, "channels": CHANNELS,
    "hermes-list": HERMES_LIST, "hermes": HERMES,
}  # fmt: skip
