"""The wire of GET /props and GET /slots, after llama-server's."""

from typing import Any, Literal

from pydantic import Field

from .common import ResponseModel


class DefaultGeneration(ResponseModel):
    """What holds for a request that says nothing else."""

    n_ctx: int = Field(description="The context in tokens.")
    params: dict[str, Any] = Field(description="As `generation_settings` of /completion.")


class Modalities(ResponseModel):
    """What a message may hold beside text: nothing."""

    vision: bool
    video: bool
    audio: bool


class TemplateCaps(ResponseModel):
    """What the chat template itself can write."""

    supports_tools: bool
    supports_tool_calls: bool


class EngineProps(ResponseModel):
    """How this server computes."""

    compute: str = Field(description="Device, library or instruction set.")
    threads: int
    weights: str = Field(description="The format that the weights are held in.")
    quantize: str = Field(description="What the server was started with.")
    kv_cache: str = Field(description="The format of keys and values.")
    speculation: str = Field(description="off, ngram, draft, mtp or eagle.")
    prefix_cache_mb: int
    prefix_cache_on_disk: bool
    max_queue: int
    tool_calls: str = Field(
        description="How the model's calls of tools are written: template (as its chat template "
        "has it), described (the template has no tools; the system message tells of them) or "
        "unreadable (the template has its own way, which stays text; another one is described)."
    )


class Slot(ResponseModel):
    """What runs: one sequence at a time."""

    id: Literal[0]
    n_ctx: int = Field(description="The context in tokens.")
    speculative: bool = Field(description="Whether tokens are guessed ahead.")
    is_processing: bool = Field(description="Whether the engine is at work.")


class Props(ResponseModel):
    """The server, its model and its defaults."""

    model_alias: str = Field(description="The name on the wire.")
    model_path: str = Field(description="The model's own name: no path of this machine.")
    model_ftype: str = Field(description="The format that the weights are held in.")
    build_info: str
    system_fingerprint: str
    total_slots: int = Field(description="1: one sequence at a time.")
    default_generation_settings: DefaultGeneration
    chat_template: str
    chat_template_caps: TemplateCaps
    bos_token: str
    eos_token: str
    modalities: Modalities
    endpoint_slots: bool = Field(description="Whether there is GET /slots.")
    endpoint_props: bool = Field(description="Whether POST /props changes anything: no.")
    endpoint_metrics: bool
    ui: bool
    is_sleeping: bool
    engine: EngineProps
