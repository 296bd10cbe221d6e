// How the weights are chosen.
//
// Channels of the residual stream come in three sorts. The first kReserved are never written by a
// layer, so they still say at the end what the embedding put there: a one, and the kind of the
// current token. The output turns them into preferences between kinds of tokens (a vowel after a
// consonant, a space after a few letters, hardly ever a byte that is no text). The last quarter
// starts empty: what is in it was written by layers, so it depends on the context. All else starts
// as the token's embedding. Weights are noise, scaled so that each layer adds its share:
//
//  - Scores of queries and keys have the deviation kScore: attention is sharp enough that single
//    tokens far back count, and not so sharp that rounding decides.
//  - The channels of recurrent layers forget at rates from 2^-3 to 2^-12 per token.
//  - Logits have the deviation kLogit or a little more. The larger it is, the smaller is the share
//    of steps whose two best tokens are closer than a given distance: 5e-3 in about one of 5000.
//
// The constants were found by trying; made_models_test.cc holds what came of them.
#include "engine/gguf/model_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "engine/gguf/byte_vocabulary.h"
#include "engine/gguf/noise.h"

namespace stemma::gguf {
namespace {

constexpr float kNormEpsilon = 1e-5F;
constexpr float kRopeBase = 10000.0F;
constexpr uint32_t kConvolution = 4;
constexpr uint32_t kStateSize = 16;

constexpr float kScore = 2.0F;
constexpr float kLogit = 40.0F;
// The share that all layers together add to the stream, whose embedding has the deviation 1.
constexpr float kMixShare = 0.7F;  // Attention, or the recurrent part.
constexpr float kFfShare = 0.5F;
constexpr float kTokenGain = 0.6F;    // How much outputs listen to channels with the current token,
constexpr float kContextGain = 3.0F;  // and to those without.
constexpr float kStreamEnd = 1.3F;    // About the deviation at the end.

// --- Kinds of tokens, and which follows which ----------------------------------------------------

enum Kind : uint32_t { kSpace, kVowel, kConsonant, kStop, kText, kOther, kKinds };
constexpr uint32_t kOne = kKinds;  // The channel that is always one.
constexpr uint32_t kReserved = kKinds + 1;

// The last quarter of the channels holds nothing of the current token, only the layers' output.
constexpr size_t first_of_context(size_t dim) { return dim - dim / 4; }

Kind kind_of(uint32_t token) {
  constexpr std::string_view kVowels = "aeiou";
  constexpr std::string_view kStops = ".,;:!?";
  if (token >= kByteTokens) return kOther;
  const char c = static_cast<char>(token);
  if (c == ' ') return kSpace;
  if (kVowels.find(c) != std::string_view::npos) return kVowel;
  if (c >= 'a' && c <= 'z') return kConsonant;
  if (kStops.find(c) != std::string_view::npos) return kStop;
  if (c == '\n' || (token > 0x20 && token < 0x7F)) return kText;
  return kOther;
}

// Added to the logits of the next token, in deviations. One row for each current kind.
constexpr float kFollows[kKinds][kKinds] = {
    // space vowel  cons.  stop   text   other
    {-6.0F, 0.0F, 0.5F, -4.0F, -3.0F, 0.0F},   // space
    {2.1F, -2.0F, 0.3F, -0.6F, -4.0F, 0.0F},   // vowel
    {1.2F, 1.0F, -1.6F, -1.0F, -4.0F, 0.0F},   // consonant
    {5.0F, -2.0F, -2.0F, -4.0F, -1.5F, 0.0F},  // stop
    {-1.0F, 0.8F, 0.5F, -3.0F, -2.5F, 0.0F},   // text
    {-2.0F, 0.5F, 0.5F, -4.0F, -1.0F, 0.0F},   // other
};
constexpr float kNoText = -12.0F;  // Bytes that are no text, and control tokens.
// <|im_end|>, which models with recurrent layers would otherwise produce too often.
constexpr float kEnd = -0.4F;
constexpr float kEndRecurrent = -0.8F;
constexpr float kEndGain = 4.0F;  // It listens only to some of the channels, the quieter ones.

float preference(uint32_t token, bool recurrent) {
  if (token == kImEnd) return recurrent ? kEndRecurrent : kEnd;
  return kind_of(token) == kOther ? kNoText : 0.0F;
}

// --- Tensors -------------------------------------------------------------------------------------

class Planner {
 public:
  explicit Planner(const ModelShape& shape)
      : shape_(shape), ff_(shape.ff == 0 ? 2 * shape.dim : shape.ff), inner_(2 * shape.dim) {}

  ModelPlan plan() {
    describe();
    embed();
    for (uint32_t i = 0; i < shape_.layers; ++i) layer(i);
    return std::move(plan_);
  }

 private:
  bool gemma() const { return shape_.architecture == Architecture::window; }
  bool jamba() const { return shape_.architecture == Architecture::hybrid; }
  bool recurrent(uint32_t layer) const {
    return shape_.architecture == Architecture::recurrent || (jamba() && layer % 2 == 0);
  }
  const char* name() const {
    switch (shape_.architecture) {
      case Architecture::window: return "gemma3";
      case Architecture::recurrent: return "mamba";
      case Architecture::hybrid: return "jamba";
      default: return "llama";
    }
  }

  void describe();
  void embed();
  void layer(uint32_t index);
  void attention(const std::string& prefix);
  void recurrence(const std::string& prefix);
  void feed_forward(const std::string& prefix);

  void add(std::string tensor, TensorType type, std::vector<uint64_t> dims,
           std::function<void(uint64_t, std::span<float>)> fill) {
    plan_.tensors.push_back({{std::move(tensor), type, std::move(dims)}, std::move(fill)});
  }
  void constant(const std::string& tensor, uint64_t count, float value) {
    add(tensor, TensorType::f32, {count},
        [value](uint64_t, std::span<float> out) { std::fill(out.begin(), out.end(), value); });
  }
  // A matrix whose output has `gain` times the deviation of its input.
  void matrix(const std::string& tensor, uint64_t from, uint64_t to, float gain) {
    const float scale = gain / std::sqrt(static_cast<float>(from));
    add(tensor, shape_.type, {from, to},
        [noise = Noise(shape_.seed, tensor), scale](uint64_t row, std::span<float> out) {
          for (size_t i = 0; i < out.size(); ++i) {
            out[i] = noise.normal(row * out.size() + i, scale);
          }
        });
  }
  // The same into the residual stream, without its reserved channels. `column` may weight the
  // input.
  void into_stream(const std::string& tensor, uint64_t from, float gain,
                   std::function<float(uint64_t)> column = {}) {
    const float scale = gain / std::sqrt(static_cast<float>(from));
    add(tensor, shape_.type, {from, shape_.dim},
        [noise = Noise(shape_.seed, tensor), scale, column = std::move(column)](
            uint64_t row, std::span<float> out) {
          for (size_t i = 0; i < out.size(); ++i) {
            const float weight = column ? column(i) * scale : scale;
            out[i] = row < kReserved ? 0.0F : noise.normal(row * out.size() + i, weight);
          }
        });
  }
  // A layer's gain, so that all layers together add `share`, however many there are.
  float each(float share) const { return share / std::sqrt(static_cast<float>(shape_.layers)); }

  const ModelShape shape_;
  const uint64_t ff_;
  const uint64_t inner_;
  ModelPlan plan_;
};

void Planner::describe() {
  GgufHeader& header = plan_.header;
  const std::string arch = name();
  const auto key = [&](const char* rest) { return arch + "." + rest; };
  header.set_string("general.architecture", arch);
  header.set_string("general.name", "stemma " + std::string(to_string(shape_.architecture)) + " " +
                                        std::to_string(shape_.layers) + "x" +
                                        std::to_string(shape_.dim));
  header.set_string("general.description", "Random weights. It has learned nothing.");
  header.set_u32("general.alignment", static_cast<uint32_t>(kAlignment));
  header.set_u32("general.file_type", shape_.type == TensorType::f32 ? 0 : 1);
  header.set_u32(key("vocab_size"), kVocabulary);
  header.set_u32(key("context_length"), shape_.context);
  header.set_u32(key("embedding_length"), shape_.dim);
  header.set_u32(key("block_count"), shape_.layers);
  header.set_f32(key("attention.layer_norm_rms_epsilon"), kNormEpsilon);

  if (shape_.architecture == Architecture::recurrent) {
    header.set_u32(key("feed_forward_length"), 0);
    header.set_u32(key("attention.head_count"), 0);
  } else {
    const uint32_t head = shape_.dim / shape_.heads;
    header.set_u32(key("feed_forward_length"), static_cast<uint32_t>(ff_));
    header.set_u32(key("attention.head_count"), shape_.heads);
    header.set_u32(key("attention.key_length"), head);
    header.set_u32(key("attention.value_length"), head);
    header.set_u32(key("rope.dimension_count"), head);
    header.set_f32(key("rope.freq_base"), kRopeBase);
    if (jamba()) {
      std::vector<uint32_t> kv_heads;
      for (uint32_t i = 0; i < shape_.layers; ++i) {
        kv_heads.push_back(recurrent(i) ? 0 : shape_.kv_heads);
      }
      header.set_u32s(key("attention.head_count_kv"), kv_heads);
    } else {
      header.set_u32(key("attention.head_count_kv"), shape_.kv_heads);
    }
  }
  if (gemma()) {
    header.set_u32(key("attention.sliding_window"), shape_.window);
    header.set_u32(key("attention.sliding_window_pattern"), 2);
    header.set_f32(key("rope.freq_base_swa"), kRopeBase);
  }
  if (recurrent(0)) {
    header.set_u32(key("ssm.conv_kernel"), kConvolution);
    header.set_u32(key("ssm.inner_size"), static_cast<uint32_t>(inner_));
    header.set_u32(key("ssm.state_size"), kStateSize);
    header.set_u32(key("ssm.time_step_rank"), shape_.dim / 16);
  }
  describe_vocabulary(header);
}

void Planner::embed() {
  // Gemma multiplies embeddings by the root of their length.
  const float scale = gemma() ? 1.0F / std::sqrt(static_cast<float>(shape_.dim)) : 1.0F;
  add("token_embd.weight", shape_.type, {shape_.dim, kVocabulary},
      [noise = Noise(shape_.seed, "token_embd.weight"), scale](uint64_t token,
                                                               std::span<float> out) {
        std::fill(out.begin(), out.end(), 0.0F);
        for (size_t i = kReserved; i < first_of_context(out.size()); ++i) {
          out[i] = noise.normal(token * out.size() + i, scale);
        }
        out[kind_of(static_cast<uint32_t>(token))] = scale;
        out[kOne] = scale;
      });
  constant("output_norm.weight", shape_.dim, 1.0F);
  const float spread = kLogit / std::sqrt(static_cast<float>(shape_.dim));
  add("output.weight", shape_.type, {shape_.dim, kVocabulary},
      [noise = Noise(shape_.seed, "output.weight"), spread, some_recurrent = recurrent(0)](
          uint64_t row, std::span<float> out) {
        const auto token = static_cast<uint32_t>(row);
        const float liking = preference(token, some_recurrent);
        std::fill(out.begin(), out.end(), 0.0F);
        if (token == kImEnd) {
          for (size_t i = first_of_context(out.size()); i < out.size(); ++i) {
            out[i] = noise.normal(row * out.size() + i, spread * kEndGain);
          }
        } else if (liking > kNoText) {
          for (size_t i = kReserved; i < out.size(); ++i) {
            const float gain = i < first_of_context(out.size()) ? kTokenGain : kContextGain;
            out[i] = noise.normal(row * out.size() + i, spread * gain);
          }
        }
        for (uint32_t kind = 0; kind < kKinds; ++kind) {
          out[kind] = kLogit * kStreamEnd * kFollows[kind][kind_of(token)];
        }
        out[kOne] = kLogit * kStreamEnd * liking;
      });
}

void Planner::layer(uint32_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  constant(prefix + "attn_norm.weight", shape_.dim, 1.0F);
  if (recurrent(index)) {
    recurrence(prefix);
  } else {
    attention(prefix);
  }
  if (shape_.architecture != Architecture::recurrent) feed_forward(prefix);
}

void Planner::attention(const std::string& prefix) {
  const uint64_t head = shape_.dim / shape_.heads;
  const uint64_t kv = head * shape_.kv_heads;
  const float sharp = std::sqrt(kScore);
  // Gemma normalises queries, keys and the output of attention.
  matrix(prefix + "attn_q.weight", shape_.dim, shape_.dim, gemma() ? 1.0F : sharp);
  matrix(prefix + "attn_k.weight", shape_.dim, kv, gemma() ? 1.0F : sharp);
  matrix(prefix + "attn_v.weight", shape_.dim, kv, 1.0F);
  into_stream(prefix + "attn_output.weight", shape_.dim, gemma() ? 1.0F : each(kMixShare) * 1.5F);
  if (gemma()) {
    constant(prefix + "attn_q_norm.weight", head, sharp);
    constant(prefix + "attn_k_norm.weight", head, sharp);
    constant(prefix + "post_attention_norm.weight", shape_.dim, each(kMixShare));
  }
}

void Planner::recurrence(const std::string& prefix) {
  const uint64_t rank = shape_.dim / 16;
  matrix(prefix + "ssm_in.weight", shape_.dim, 2 * inner_, 1.0F);
  add(prefix + "ssm_conv1d.weight", TensorType::f32, {kConvolution, inner_},
      [noise = Noise(shape_.seed, prefix + "ssm_conv1d.weight")](uint64_t row,
                                                                 std::span<float> out) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = noise.normal(row * out.size() + i, 0.5F);
      });
  constant(prefix + "ssm_conv1d.bias", inner_, 0.0F);
  matrix(prefix + "ssm_x.weight", inner_, rank + 2 * kStateSize, 2.0F);
  if (jamba()) {
    constant(prefix + "ssm_dt_norm.weight", rank, 1.0F);
    constant(prefix + "ssm_b_norm.weight", kStateSize, 1.0F);
    constant(prefix + "ssm_c_norm.weight", kStateSize, 1.0F);
  }
  matrix(prefix + "ssm_dt.weight", rank, inner_, 0.5F);

  // Channel c forgets 2^-k per token, k from 3 to 12; the time step is about e to the bias.
  const uint64_t inner = inner_;
  const auto octave = [inner](uint64_t channel) { return 3 + channel * 10 / inner; };
  add(prefix + "ssm_dt.bias", TensorType::f32, {inner_}, [octave](uint64_t, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(octave(i)) * -0.69314718F;
    }
  });
  add(prefix + "ssm_a", TensorType::f32, {kStateSize, inner_}, [](uint64_t, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = -0.5F * static_cast<float>(i + 1);
  });
  constant(prefix + "ssm_d", inner_, 0.25F);
  // Slow channels take in little of each token, so their output is amplified.
  into_stream(
      prefix + "ssm_out.weight", inner_, each(kMixShare) * 3.0F, [octave](uint64_t channel) {
        return std::sqrt(std::sqrt(static_cast<float>(uint64_t{1} << (octave(channel) - 3))));
      });
}

void Planner::feed_forward(const std::string& prefix) {
  constant(prefix + "ffn_norm.weight", shape_.dim, 1.0F);
  matrix(prefix + "ffn_gate.weight", shape_.dim, ff_, 1.0F);
  matrix(prefix + "ffn_up.weight", shape_.dim, ff_, 1.0F);
  into_stream(prefix + "ffn_down.weight", ff_, gemma() ? 1.0F : each(kFfShare) * 2.0F);
  if (gemma()) constant(prefix + "post_ffw_norm.weight", shape_.dim, each(kFfShare));
}

}  // namespace

ModelPlan plan_model(const ModelShape& shape) { return Planner(shape).plan(); }

}  // namespace stemma::gguf
