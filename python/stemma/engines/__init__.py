"""Plug-ins that put a stemma.Store under other engines. Each is loaded by the engine's own
mechanism.

- stemma.engines.vllm: a secondary tier of vLLM's KV offloading, by `module_path`.
- stemma.engines.lmcache: a connector for LMCache's `native_plugin` adapter.
- stemma.engines.sglang: a storage backend of SGLang's HiCache, `dynamic`.

None of the engines is imported before its plug-in is.
"""
