"""From a trained model to a GGUF file, under the names that llama.cpp looks for."""
import math
import pathlib

import gguf
from tokenizer import SPACE, SPECIALS, VISIBLE

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # Kinds of tokens, numbered by the format.
FILE_TYPE_Q8_0, FILE_TYPE_F32 = 7, 0
TEMPLATE = pathlib.Path(__file__).with_name("chat.jinja")


def describe_tokenizer(file, tokenizer):
    file.set("tokenizer.ggml.model", "gpt2")
    file.set("tokenizer.ggml.pre", "smollm")
    file.set("tokenizer.ggml.tokens", tokenizer.tokens)
    file.set("tokenizer.ggml.token_type", gguf.Signed(
        (USER_DEFINED if t in VISIBLE else CONTROL) if t in SPECIALS else NORMAL for t in tokenizer.tokens))
    file.set("tokenizer.ggml.merges", [" ".join(m) for m in tokenizer.merges])
    file.set("tokenizer.ggml.bos_token_id", tokenizer.special["<|endoftext|>"])
    file.set("tokenizer.ggml.eos_token_id", tokenizer.special["<|im_end|>"])
    file.set("tokenizer.ggml.padding_token_id", tokenizer.special["<|pad|>"])
    file.set("tokenizer.ggml.add_bos_token", False)
    file.set("tokenizer.ggml.add_eos_token", False)
    file.set("tokenizer.chat_template", TEMPLATE.read_text())
    assert SPACE == "\u0120"


def describe_shape(file, shape):
    def key(rest, value):
        file.set(f"{shape.arch}.{rest}", value)

    key("vocab_size", shape.vocabulary)
    key("context_length", shape.context)
    key("embedding_length", shape.dim)
    key("block_count", shape.layers)
    key("feed_forward_length", shape.ff)
    key("attention.head_count", shape.heads)
    key("attention.head_count_kv", [shape.kv_heads if shape.attends(i) else 0 for i in range(shape.layers)]
        if shape.arch == "granitehybrid" else shape.kv_heads)
    key("attention.key_length", shape.head)
    key("attention.value_length", shape.head)
    key("attention.layer_norm_rms_epsilon", shape.epsilon)
    key("rope.dimension_count", shape.head)
    key("rope.freq_base", shape.rope_base)
    if shape.arch == "gemma3":
        key("attention.sliding_window", shape.window)
        key("attention.sliding_window_pattern", 2)
        key("rope.freq_base_swa", shape.rope_base)
    if shape.arch == "granitehybrid":
        key("ssm.conv_kernel", shape.convolution)
        key("ssm.inner_size", shape.inner)
        key("ssm.state_size", shape.state)
        key("ssm.time_step_rank", shape.ssm_heads)
        key("ssm.group_count", 1)
        key("rope.scaling.finetuned", False)  # For this architecture it means: no positions.


def add_block(file, prefix, block, matrix):
    """The tensors of one layer. `matrix` is the type of its matrices."""
    def add(name, parameter, kind=gguf.F32):
        file.add(prefix + name, parameter.detach().float().cpu().numpy(), kind)

    mix = block.mix
    add("attn_norm.weight", block.norm)
    add("ffn_norm.weight", block.ff_norm)
    if hasattr(mix, "q"):
        add("attn_q.weight", mix.q.weight, matrix)
        add("attn_k.weight", mix.k.weight, matrix)
        add("attn_v.weight", mix.v.weight, matrix)
        add("attn_output.weight", mix.out.weight, matrix)
    else:
        add("ssm_in.weight", mix.into.weight, matrix)
        add("ssm_conv1d.weight", mix.conv)
        add("ssm_conv1d.bias", mix.conv_bias)
        add("ssm_dt.bias", mix.dt_bias)
        add("ssm_a", -mix.a_log.exp()[:, None])
        add("ssm_d", mix.d[:, None])
        add("ssm_norm.weight", mix.norm[None, :])
        add("ssm_out.weight", mix.out.weight, matrix)
    if hasattr(mix, "q_norm"):
        add("attn_q_norm.weight", mix.q_norm)
        add("attn_k_norm.weight", mix.k_norm)
        add("post_attention_norm.weight", block.post_norm)
        add("post_ffw_norm.weight", block.post_ff_norm)
    add("ffn_gate.weight", block.gate.weight, matrix)
    add("ffn_up.weight", block.up.weight, matrix)
    add("ffn_down.weight", block.down.weight, matrix)


def stored_scale(shape):
    """Models here multiply embeddings by the root of their length. llama.cpp does so for gemma3 alone; for others
    the file has them multiplied already, and the last norm makes it good for the output, which shares them."""
    return 1.0 if shape.arch == "gemma3" else math.sqrt(shape.dim)


def write(model, tokenizer, path, name, steps, matrix=gguf.Q8_0):
    """Writes the file and returns its size."""
    shape = model.shape
    file = gguf.File()
    file.set("general.architecture", shape.arch)
    file.set("general.name", name)
    file.set("general.description", f"A small model that answers from its prompt; {steps} steps of models/train.")
    file.set("general.license", "apache-2.0")
    file.set("general.alignment", gguf.ALIGNMENT)
    file.set("general.file_type", FILE_TYPE_Q8_0 if matrix == gguf.Q8_0 else FILE_TYPE_F32)
    describe_shape(file, shape)
    describe_tokenizer(file, tokenizer)
    scale = stored_scale(shape)
    file.add("token_embd.weight", (model.embedding.weight.detach().float() * scale).cpu().numpy(), matrix)
    file.add("output_norm.weight", (model.norm.detach().float() / scale).cpu().numpy())
    for i, block in enumerate(model.blocks):
        add_block(file, f"blk.{i}.", block, matrix)
    return file.write(path)


def read(path, model):
    """Puts the numbers of a file into a model of the same shape. What q8_0 has rounded stays rounded."""
    import torch

    reader = gguf.Reader(path)
    left = reader.names()

    def put(parameter, name):
        left.remove(name)
        parameter.data.copy_(torch.from_numpy(reader.tensor(name).copy()).reshape(parameter.shape))

    put(model.embedding.weight, "token_embd.weight")
    put(model.norm, "output_norm.weight")
    model.embedding.weight.data /= stored_scale(model.shape)
    model.norm.data *= stored_scale(model.shape)
    for i, block in enumerate(model.blocks):
        prefix, mix = f"blk.{i}.", block.mix
        names = [(block.norm, "attn_norm.weight"), (block.ff_norm, "ffn_norm.weight"),
                 (block.gate.weight, "ffn_gate.weight"), (block.up.weight, "ffn_up.weight"),
                 (block.down.weight, "ffn_down.weight")]
        if hasattr(mix, "q"):
            names += [(mix.q.weight, "attn_q.weight"), (mix.k.weight, "attn_k.weight"),
                      (mix.v.weight, "attn_v.weight"), (mix.out.weight, "attn_output.weight")]
        else:
            names += [(mix.into.weight, "ssm_in.weight"), (mix.conv, "ssm_conv1d.weight"),
                      (mix.conv_bias, "ssm_conv1d.bias"), (mix.dt_bias, "ssm_dt.bias"), (mix.a_log, "ssm_a"),
                      (mix.d, "ssm_d"), (mix.norm, "ssm_norm.weight"), (mix.out.weight, "ssm_out.weight")]
        if hasattr(mix, "q_norm"):
            names += [(mix.q_norm, "attn_q_norm.weight"), (mix.k_norm, "attn_k_norm.weight"),
                      (block.post_norm, "post_attention_norm.weight"), (block.post_ff_norm, "post_ffw_norm.weight")]
        for parameter, name in names:
            put(parameter, prefix + name)
        if not hasattr(mix, "q"):
            mix.a_log.data.copy_(torch.log(-mix.a_log.data))
    assert not left, f"not read: {sorted(left)}"
    return model
