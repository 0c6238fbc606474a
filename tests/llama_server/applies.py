"""Which of llama.cpp's tests of its server have no place here, and why. All others must pass.

A key is a file, one of its tests, or one case of a test. docs/llama-server.md says it by subject.
"""

# Names under which the tests of a file ask for the one model.
NAMES = {
    "test_chat_completion": "gpt-3.5-turbo-instruct",
    "test_compat_anthropic": "test",
    "test_compat_oai_responses": "gpt-4.1",
    "test_completion": "davinci-002",
    "test_security": "gpt-3.5-turbo",
}

_TEXTS = "asks for the text that its model writes, or for counts of its tokens"
_MODEL = "needs a model that no registry has"
_FLAG = "an option of its program"
_TEMPLATE = "names a chat template that its program knows"
_SEED = "a seed for requests that send none is an option of its program"
_SLOTS = "there is one slot"
_VERBOSE = "`__verbose` shows the prompt; here include does"
_RENDERED = "/v1/completions without v1 is OpenAI's here"
_HEADER = "reads the name of a header by its capitals; it is sent in small letters"
_FIRST = "the first delta of a chat has an empty text, as OpenAI's, and not null"

# Not run: the server that the test wants cannot be started, or what it says is left to chance.
NOT_HERE: dict[str, str] = {
    "test_embedding": "not served: 501",
    "test_rerank": "not served: 501",
    "test_vision_api": "not served: images are refused",
    "test_lora": "adapters are not served",
    "test_speculative": _MODEL,
    "test_router": "one model, and no router",
    "test_proxy": "there is no proxy",
    "test_sleep": _FLAG,
    "test_mcp_servers": "the server runs no tools",
    "test_tools_builtin": "the server runs no tools",
    "test_compat_gcp": "another wire",
    "test_stream": "needs its router; here streams are resumed by event, see docs/streams.md",
    "test_kv_keep_only_active": _SLOTS,
    "test_basic::test_server_multiple_addresses": "one address",
    "test_basic::test_load_split_model": _MODEL,
    "test_basic::test_server_model_aliases_and_tags": _FLAG,
    "test_completion::test_completion_stream_with_openai_library_stops": _MODEL,
    "test_completion::test_completion_stream_vs_non_stream": _SEED,
    "test_completion::test_n_probs_post_backend_sampling": _FLAG,
    "test_completion::test_completion_unified": "one cache for several slots",
    "test_completion::test_completion_prompt_cache": "one cache for several slots",
    "test_ctx_shift::test_ctx_shift_enabled": "a context is not shifted",
    "test_ctx_shift::test_ctx_shift_disabled_short_prompt": _TEXTS,
    "test_compat_oai_responses::test_responses_stream_with_openai_library": _TEXTS,
    "test_infill::test_with_qwen_model": _MODEL,
    "test_chat_completion::test_chat_template": _TEMPLATE,
    "test_chat_completion::test_chat_template_continue_final_message_mutual_exclusion": _TEMPLATE,
    "test_chat_completion::test_apply_chat_template": _TEMPLATE,
    "test_compat_anthropic::test_anthropic_vision_base64_with_multimodal_model": _MODEL,
    "test_compat_anthropic::test_anthropic_thinking_with_reasoning_model": _MODEL,
    "test_metrics::test_metrics_embedding_prompt_is_counted": "not served: 501",
    "test_security::test_cors_origins_localhost_reflects": "needs its router",
    "test_security::test_cors_origins_localhost_rejects": "needs its router",
    "test_security::test_cors_origins_defaults_to_localhost_with_tools_enabled": "needs its router",
    "test_security::test_cors_proxy_only_forwards_explicit_proxy_headers": "there is no proxy",
    "test_security::test_local_media_file": _MODEL,
    "test_slot_save::test_slot_save_restore_text_only_on_multimodal": _MODEL,
    "test_slot_save::test_slot_save_restore_with_image": _MODEL,
    "test_slot_save::test_slot_save_restore_with_two_images": _MODEL,
    "test_slot_save::test_slot_save_restore_with_image_across_restart": _MODEL,
    "test_slot_save::test_slot_save_restore_image_payload_larger_than_context": _MODEL,
    "test_slot_save::test_slot_restore_media_file_without_mmproj": _MODEL,
    "test_template::test_reasoning": "whether a model reasons is said by each request",
    "test_tool_call::test_completion_with_required_tool_real_model": _MODEL,
    "test_tool_call::test_completion_without_tool_call_slow": _MODEL,
    "test_tool_call::test_weather": _MODEL,
    "test_tool_call::test_calc_result": _MODEL,
    "test_tool_call::test_thoughts": _MODEL,
    "test_tool_call::test_hello_world": _MODEL,
}

# Run, and must fail.
DIFFERS: dict[str, str] = {
    "test_basic::test_server_props": "the path of the model is not told, and there is one slot",
    "test_basic::test_server_slots": "GET /slots is always there, with one slot",
    "test_basic::test_no_ui": "the page stands at /ui, to which browsers are sent",
    "test_completion::test_completion": _TEXTS,
    "test_completion::test_completion_stream": _TEXTS,
    "test_completion::test_completion_with_openai_library": _TEXTS,
    "test_completion::test_completion_stream_with_openai_library": _TEXTS,
    "test_completion::test_completion_parallel_slots[2-4]": _SLOTS,
    "test_completion::test_completion_parallel_slots[4-6]": _SLOTS,
    "test_completion::test_completion_response_fields[I believe the meaning of life is-32-response_fields1]": _TEXTS,  # noqa: E501
    "test_ctx_shift::test_ctx_shift_disabled_long_prompt": "the sentence is OpenAI's, the type its",
    "test_ctx_shift::test_ctx_shift_disabled_stream": "a length beyond the context is an error",
    "test_ignore_eos::test_ignore_eos_populates_logit_bias": "the end of a text has no bias",
    "test_infill::test_infill_without_input_extra": "the model was not made to fill in: 501",
    "test_infill::test_infill_with_input_extra": "the model was not made to fill in: 501",
    "test_chat_completion::test_chat_completion": _TEXTS,
    "test_chat_completion::test_chat_completion_cached_tokens": _TEXTS,
    "test_chat_completion::test_chat_completion_stream": _TEXTS,
    "test_chat_completion::test_chat_completion_with_openai_library": _TEXTS,
    "test_chat_completion::test_chat_template_assistant_prefill": _VERBOSE,
    "test_chat_completion::test_chat_template_continue_final_message_vllm_compat": _VERBOSE,
    "test_chat_completion::test_verbose_debug": _VERBOSE,
    "test_chat_completion::test_invalid_chat_completion_req[messages7]": "two turns of the assistant in a row are the template's to refuse",  # noqa: E501
    "test_chat_completion::test_chat_completion_with_timings_per_token": _FIRST,
    "test_chat_completion::test_logprobs_stream": _FIRST,
    "test_chat_completion::test_context_size_exceeded": "OpenAI's error on OpenAI's route",
    "test_chat_completion::test_context_size_exceeded_stream": "OpenAI's error on OpenAI's route",
    "test_chat_completion::test_return_progress": "progress is told by the pass, not by the batch",
    "test_tokenize::test_tokenize_with_bos": _TEXTS,
    "test_template::test_date_inside_prompt": "templates are told no date but by strftime_now",
    "test_metrics::test_metrics_disabled": "GET /metrics is always there",
    "test_metrics::test_metrics_prompt_processed_and_cached": _HEADER,
    "test_metrics::test_metrics_predicted_total_matches_requests": _HEADER,
    "test_metrics::test_metrics_prometheus_format": "without n_decode_total and busy slots",
    "test_metrics::test_metrics_generation_rate_excludes_first_token": "a rate counts all tokens",
    "test_metrics::test_metrics_timings_on_prompt_progress": "progress has times of its own",
    "test_compat_oai_responses::test_responses_with_openai_library": _TEXTS,
    "test_compat_oai_responses::test_responses_stream_with_llama_telemetry": "timings stand in the response, not in its deltas",  # noqa: E501
    "test_compat_anthropic::test_anthropic_tool_result_with_image": "the model reads that there is one",  # noqa: E501
    "test_compat_anthropic::test_anthropic_vision_format_accepted": "400, and not 500",
    "test_compat_anthropic::test_anthropic_empty_messages": "as at Anthropic, a message is needed",
    "test_security::test_access_static_assets_without_api_key": "there are no such files",
    "test_security::test_correct_api_key": _RENDERED,
    "test_security::test_correct_api_key_anthropic_header": _RENDERED,
    "test_security::test_cors_options": "no origin is allowed unless --allow-origins names it",
    "test_slot_save::test_slot_save_restore": _SLOTS,
    "test_slot_save::test_slot_restore_legacy_token_list": _SLOTS,
    "test_slot_save::test_slot_erase": _SLOTS,
    "test_tool_call::test_completion_without_tool_call_fast[meta-llama-Llama-3.3-70B-Instruct-128-tools0-None-CompletionMode.STREAMED]": _FIRST,  # noqa: E501
    "test_tool_call::test_completion_without_tool_call_fast[meta-llama-Llama-3.3-70B-Instruct-128-tools1-None-CompletionMode.STREAMED]": _FIRST,  # noqa: E501
    "test_tool_call::test_completion_without_tool_call_fast[meta-llama-Llama-3.3-70B-Instruct-128-tools2-none-CompletionMode.STREAMED]": _FIRST,  # noqa: E501
}
