"""The fields of other servers and of their clients that this server does not serve, by name.

Owns what each is answered with: refused, a warning, or nothing. Does not know where a field stands
in a body, or how its answer is worded. docs/api.md shows these tables.
"""

from typing import Any

REFUSED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"], []),
    "audio": (),
    "prediction": (),
    "moderation": (),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "chat_template": (),
    "prompt_template": ("",),
    "template": ("",),
    "response_prefix": ("",),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "documents": ([],),
    "context": ([],),
    "prompt_embeds": (),
    "ebnf": (),
    "structured_outputs.structural_tag": (),
    "stream_options.include_obfuscation": (False,),
    "mcp_servers": ([],),
    "container": (),
    "messages[].audio": (),
    "messages[].annotations": ([],),
}
"""A field that would change the answer -> its values, besides null, that ask for nothing."""

WARNED: dict[str, tuple[Any, ...]] = {
    # Samplers.
    "smoothing_curve": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "penalty_alpha": (0, 0.0),
    "num_beams": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1, 1.0),
    "early_stopping": (False,),
    "do_sample": (True,),
    "rep_pen_slope": (0, 1, 0.0, 1.0),
    "penalize_nl": (False,),
    "penalize_newline": (True,),
    "min_keep": (0, 1),
    "adaptive_target": (-1, -1.0, -0.01),
    "backend_sampling": (True, False),
    "dynatemp_mode": (0, 1),
    # Drafts and caches, which change no text.
    "speculative_ngram": (True,),
    "speculative.n_min": (0,),
    "speculative.p_min": (0, 0.0),
    "speculative.type": (),
    "speculative.ngram_size_n": (),
    "speculative.ngram_size_m": (),
    "speculative.ngram_min_hits": (),
    "n_cache_reuse": (0,),
    "id_slot": (-1, 0),
    # Prompt and context.
    "n_keep": (0,),
    "n_discard": (0,),
    "n_indent": (0,),
    "num_ctx": (),
    "generate_window": (0,),
    "truncation_length": (),
    "truncate": (False,),
    "shift": (False,),
    "lora": ([],),
    "context_management": (),
    "compaction": (),
    "personality": (),
    # How replies are read, which the model's own format decides.
    "reasoning_format": ("auto", "deepseek"),
    "reasoning": ({},),
    "reasoning_control": (False,),
    "reasoning_budget_tokens": (-1,),
    "thinking_budget_tokens": (-1,),
    "reasoning_budget_message": ("",),
    "reasoning_budget_start_tag": ("",),
    "reasoning_budget_end_tag": ("",),
    "reasoning_budget_end_tags": ([],),
    "parse_tool_calls": (True,),
    "chat_format": (),
    "chat_parser": ("",),
    "generation_prompt": ("",),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "preserved_tokens": ([],),
    # The answer.
    "n_cmpl": (1,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "spaces_between_special_tokens": (True,),
    "include_reasoning": (True,),
    "return_prompt_text": (False,),
    "verbose": (False,),
    "max_tokens_second": (0,),
    "t_max_prompt_ms": (-1, 0),
    "sse_ping_interval": (),
    "stream_interval": (1,),
    "priority": (0,),
    "response_fields": ([],),
    "structured_outputs.disable_fallback": (True, False),
    "structured_outputs.disable_any_whitespace": (False,),
    "structured_outputs.disable_additional_properties": (False,),
    # Pictures that are to be made.
    "width": (),
    "height": (),
    "steps": (),
    # How Anthropic serves its models, and what it charges.
    "speed": ("standard",),
    "inference_geo": (),
    "diagnostics": (),
    "fallbacks": ([],),
    "fallback_credit_token": (),
    "billing_policy": (),
}
"""A field that changes no answer, or that clients send unasked -> the same. So is every field that
no table has.
"""

QUIET = frozenset(
    {
        # Matters of OpenAI's and Anthropic's own servers.
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "session_id",
        "user_profile_id",
        "workspace_id",
        # SillyTavern's words to its own backend.
        "api_type",
        "api_server",
        # Of samplers that this server does not have.
        "adaptive_decay",
        # How Ollama loads a model.
        "embedding_only",
        "f16_kv",
        "logits_all",
        "low_vram",
        "main_gpu",
        "num_batch",
        "num_gpu",
        "num_keep",
        "num_thread",
        "numa",
        "use_mlock",
        "use_mmap",
        "vocab_only",
    }
)
"""Fields that ask nothing of the model: neither refused nor warned of."""

INSTEAD = {
    "context": "no conversation is kept in token ids; send its messages to /api/chat",
    "ebnf": "it is a language of its own; send a grammar in GBNF or Lark as `grammar`",
    "moderation": "this server moderates nothing; leave it out",
    "prompt_template": "only the operator chooses the chat template, with --chat-template",
    "response_prefix": "send it as the last message, of role assistant, with "
    "`continue_final_message`",
    "template": "only the operator chooses the chat template, with --chat-template",
}
"""What to send in place of a field that is refused."""

WHY = {
    "do_sample": "this server does not know the field; `temperature: 0` is greedy",
    "reasoning": "this server does not know the field; see `reasoning_effort`",
    "reasoning_budget_tokens": "the model thinks as long as it does",
    "shift": "a text ends where the context does",
    "speculative_ngram": "drafts never change the text; `speculate: false` turns them off",
    "sse_ping_interval": "the operator chooses it, with --ping-interval",
    "thinking_budget_tokens": "the model thinks as long as it does",
    "truncate": "a prompt that is too long is an error; see `truncate_prompt_tokens`",
    "truncation_length": "a prompt is not cut to a length; see `truncate_prompt_tokens`",
    "num_ctx": "the context has the length with which the model was loaded",
}
"""Why a field had no effect, where there is more to say than that it is not known."""
