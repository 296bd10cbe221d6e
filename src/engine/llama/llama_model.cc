#include "engine/llama/llama_model.h"

#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>

#include "engine/llama/file_id.h"
#include "engine/llama/free_memory.h"
#include "engine/llama/llama_device.h"
#include "engine/llama/llama_library.h"

namespace stemma::engine {

namespace {

// A character that no vocabulary joins with another.
constexpr char kSign = '\x01';

struct TypeName {
  const char* name;
  ggml_type type;
};
constexpr TypeName kTypes[] = {{"f32", GGML_TYPE_F32},   {"f16", GGML_TYPE_F16},
                               {"bf16", GGML_TYPE_BF16}, {"q8_0", GGML_TYPE_Q8_0},
                               {"q4_0", GGML_TYPE_Q4_0}, {"q4_1", GGML_TYPE_Q4_1},
                               {"q5_0", GGML_TYPE_Q5_0}, {"q5_1", GGML_TYPE_Q5_1}};
const TypeName* type_named(const std::string& name) {
  const auto* found =
      std::ranges::find(kTypes, name, [](const TypeName& each) { return std::string(each.name); });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string metadata(const llama_model* model, const char* key) {
  char text[256];
  const int32_t length = llama_model_meta_val_str(model, key, text, sizeof text);
  return length < 0 ? "" : std::string(text, std::min<size_t>(length, sizeof text - 1));
}

// Whether chat templates mark turns with this word: <|im_start|>, which no ordinary text contains;
// or another word in brackets, <start_of_turn> or [INST], that the model's own template writes.
bool looks_special(std::string_view text, std::string_view chat_template) {
  constexpr std::string_view kWideBar = "\xEF\xBD\x9C";  // DeepSeek's.
  const auto within = [&](std::string_view begin, std::string_view end) {
    return text.size() > begin.size() + end.size() && text.starts_with(begin) &&
           text.ends_with(end);
  };
  if (within("<|", "|>") || within("<" + std::string(kWideBar), std::string(kWideBar) + ">")) {
    return true;
  }
  return (within("<", ">") || within("[", "]")) &&
         chat_template.find(text) != std::string_view::npos;
}

std::string model_name(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

// The size that the file system reports; 0 if it reports none.
uint64_t bytes_of(const std::string& path) {
  uint64_t bytes = 0;
  for (const std::string& part : model_parts(path)) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(part, error);
    if (!error) bytes += size;
  }
  return bytes;
}

std::vector<ggml_backend_dev_t> devices_named(const std::vector<ComputeDevice>& gpus) {
  std::vector<ggml_backend_dev_t> devices;
  for (const ComputeDevice& gpu : gpus) {
    if (ggml_backend_dev_t device = ggml_backend_dev_by_name(gpu.name.c_str())) {
      devices.push_back(device);
    }
  }
  return devices;
}

// Whether llama.cpp's CPU library multiplies with AMX.
bool cpu_uses_amx() {
  ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
  if (cpu == nullptr) return false;
  const auto features_of = reinterpret_cast<ggml_backend_get_features_t>(
      ggml_backend_reg_get_proc_address(cpu, "ggml_backend_get_features"));
  if (features_of == nullptr) return false;
  for (const ggml_backend_feature* one = features_of(cpu); one->name != nullptr; ++one) {
    if (std::string_view(one->name).starts_with("AMX")) return true;
  }
  return false;
}

// llama.cpp v0.5.0 computes only the first sequence of a batch with AMX in the layers of recurrent
// and hybrid models; the others get stale results. Their weights must stay in plain buffers there.
// A pipe can be read only once, so its kind is not checked.
bool amx_is_wrong_for(const std::string& path) {
  std::error_code error;
  if (!cpu_uses_amx() || !std::filesystem::is_regular_file(path, error)) return false;
  llama_model_params only_the_kind = llama_model_default_params();
  only_the_kind.vocab_only = true;
  llama_model* model = llama_model_load_from_file(path.c_str(), only_the_kind);
  if (model == nullptr) return false;  // Loading all of it reports why.
  const bool wrong = llama_model_is_recurrent(model) || llama_model_is_hybrid(model);
  llama_model_free(model);
  return wrong;
}

uint32_t threads_of(const LlamaOptions& options) {
  return options.threads != 0 ? options.threads
                              : std::max(1U, std::thread::hardware_concurrency() / 2);
}

// Asks the GPUs how much memory is free now.
void refresh_memory(std::vector<ComputeDevice>& gpus) {
  for (ComputeDevice& gpu : gpus) {
    ggml_backend_dev_t device = ggml_backend_dev_by_name(gpu.name.c_str());
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (device != nullptr) ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
    gpu.free_bytes = free_bytes;
    gpu.total_bytes = total_bytes;
  }
}

}  // namespace

struct LlamaModel::Batch {
  explicit Batch(uint32_t tokens)
      : batch(llama_batch_init(static_cast<int32_t>(tokens), 0, 1)), room(tokens) {}
  ~Batch() { llama_batch_free(batch); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  llama_batch batch;
  uint32_t room;
};

LlamaModel::~LlamaModel() {
  embedder_.reset();
  sequences_.reset();
  if (context_ != nullptr) llama_free(context_);
  if (model_ != nullptr) llama_model_free(model_);
}

std::unique_ptr<LlamaModel> LlamaModel::load(const LlamaOptions& options, std::string& why) {
  std::unique_ptr<LlamaModel> made(new LlamaModel);
  why = made->start(options);
  if (!why.empty()) made.reset();
  return made;
}

std::string LlamaModel::start(const LlamaOptions& options) {
  start_library();
  const TypeName* k_type = type_named(options.k_type);
  const TypeName* v_type = type_named(options.v_type);
  if (k_type == nullptr || v_type == nullptr) {
    return "no such type of K and V: " + (k_type == nullptr ? options.k_type : options.v_type);
  }
  if (options.sequences == 0 || options.sequences >= llama_max_parallel_sequences()) {
    return "llama.cpp has between 1 and " + std::to_string(llama_max_parallel_sequences() - 1) +
           " sequences, not " + std::to_string(options.sequences);
  }

  // Asking a GPU takes some of its memory, so GPUs that are not wanted are left alone.
  const GpuSearch search = options.gpu_layers == 0 ? GpuSearch{} : find_gpus();
  if (std::string why = choose_gpus(options, search); !why.empty()) return why;
  info_.name = model_name(options.path);
  info_.scope.model = options.model_id;
  if (options.model_id.empty()) {
    for (const std::string& part : model_parts(options.path)) {
      std::string id;
      if (std::string why = identify(options, part, id); !why.empty()) return why;
      info_.scope.model += info_.scope.model.empty() ? id : "+" + id;
    }
  }

  forget_errors();
  if (std::string why = load_weights(options, search); !why.empty()) return why;
  info_.trained_tokens = static_cast<uint32_t>(std::max(1, llama_model_n_ctx_train(model_)));
  if (std::string why = make_context(options); !why.empty()) return why;
  Adapters adapters;
  if (std::string why = load_adapters(options, adapters); !why.empty()) return why;

  std::string why;
  sequences_ = LlamaSequences::create(
      context_,
      {options.sequences, options.unified, ggml_is_quantized(k_type->type), options.shares,
       options.range_tokens != 0 ? options.range_tokens : best_range()},
      why);
  if (sequences_ == nullptr) return options.path + ": " + why;
  batch_ = std::make_unique<Batch>(llama_n_batch(context_));
  if (why = make_embedder(options, adapters); !why.empty()) return why;
  fill_info(options);
  return "";
}

std::string LlamaModel::identify(const LlamaOptions& options, const std::string& path,
                                 std::string& id) {
  const FileId found = file_id(path, options.id_memory, [&](uint64_t done, uint64_t all) {
    return !options.progress ||
           options.progress("reading",
                            all == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(all));
  });
  id = found.sha256;
  return found.why;
}

std::string LlamaModel::load_weights(const LlamaOptions& options, const GpuSearch& search) {
  llama_model_params model_options = llama_model_default_params();
  model_options.n_gpu_layers = options.gpu_layers;
  model_options.use_extra_bufts = !amx_is_wrong_for(options.path);
  // Always set: llama.cpp would otherwise use a GPU for long prompts even without layers on it.
  std::vector<ggml_backend_dev_t> devices = devices_named(info_.placement.gpus);
  devices.push_back(nullptr);
  model_options.devices = devices.data();
  const std::function<bool(const char*, double)>& progress = options.progress;
  model_options.progress_callback = [](float done, void* user) {
    const auto& tell = *static_cast<const std::function<bool(const char*, double)>*>(user);
    return !tell || tell("loading", done);
  };
  model_options.progress_callback_user_data =
      const_cast<void*>(static_cast<const void*>(&progress));
  model_ = llama_model_load_from_file(options.path.c_str(), model_options);
  if (model_ == nullptr) {
    const std::string hint =
        weights_hint(first_error(), bytes_of(options.path),
                     info_.placement.gpus.empty() ? std::vector<FoundGpu>{} : search.gpus);
    return with_reason("cannot load " + options.path) + (hint.empty() ? "" : ": " + hint);
  }
  info_.placement.layers = static_cast<uint32_t>(llama_model_n_layer(model_)) + 1;
  if (!info_.placement.gpus.empty()) {
    info_.placement.gpu_layers =
        options.gpu_layers < 0
            ? info_.placement.layers
            : std::min(info_.placement.layers, static_cast<uint32_t>(options.gpu_layers));
  }
  if (llama_model_has_encoder(model_) || !llama_model_has_decoder(model_)) {
    return options.path + " is a model with an encoder; only decoders are served";
  }
  vocabulary_ = llama_model_get_vocab(model_);
  if (llama_vocab_type(vocabulary_) == LLAMA_VOCAB_TYPE_NONE) {
    return options.path + " has no vocabulary";
  }
  return "";
}

std::string LlamaModel::load_adapters(const LlamaOptions& options, Adapters& found) {
  for (const LlamaAdapter& each : options.adapters) {
    ScopeAdapter in_scope{.name = "", .generation = 0, .scale = each.scale};
    if (std::string why = identify(options, each.path, in_scope.name); !why.empty()) return why;
    llama_adapter_lora* adapter = llama_adapter_lora_init(model_, each.path.c_str());
    if (adapter == nullptr) return with_reason("cannot load the adapter " + each.path);
    found.adapters.push_back(adapter);
    found.scales.push_back(each.scale);
    info_.scope.adapters.push_back(std::move(in_scope));
  }
  if (!found.adapters.empty() &&
      llama_set_adapters_lora(context_, found.adapters.data(), found.adapters.size(),
                              found.scales.data()) != 0) {
    return with_reason("the adapters do not fit the model");
  }
  return "";
}

void LlamaModel::fill_info(const LlamaOptions& options) {
  info_.scope.kv_types = options.k_type + "/" + options.v_type;
  info_.scope.layout = std::string("llama.cpp ") + STEMMA_LLAMA_RELEASE +
                       (options.unified ? " unified" : " split") +
                       (options.flash_attention ? " fa" : " no-fa");
  info_.scope.rope_and_window =
      std::string(to_string(sequences_->kind())) + " " + std::to_string(llama_model_n_swa(model_));
  info_.scope.state_format = 1;
  info_.architecture = metadata(model_, "general.architecture");
  char description[128] = "";
  llama_model_desc(model_, description, sizeof description);
  info_.description = description;
  if (const char* text = llama_model_chat_template(model_, nullptr)) info_.chat_template = text;
  info_.vocabulary = static_cast<uint32_t>(llama_vocab_n_tokens(vocabulary_));
  info_.batch_tokens = llama_n_batch(context_);
  info_.passes_overlap = !info_.placement.gpus.empty();
  info_.parameters = llama_model_n_params(model_);
  info_.file_bytes = llama_model_size(model_);
  info_.adds_bos = llama_vocab_get_add_bos(vocabulary_);
  refresh_memory(info_.placement.gpus);
  find_sign();
  find_mistyped();
  if (const llama_token bos = llama_vocab_bos(vocabulary_); bos != LLAMA_TOKEN_NULL) {
    append_text(static_cast<Token>(bos), true, info_.bos_text);
  }
  if (const llama_token eos = llama_vocab_eos(vocabulary_); eos != LLAMA_TOKEN_NULL) {
    append_text(static_cast<Token>(eos), true, info_.eos_text);
  }
}

// A call costs a device about as much as copying a few hundred positions.
uint32_t LlamaModel::best_range() const noexcept {
  constexpr uint32_t kManyTokens = 4096;
  return info_.placement.gpus.empty() ? 0 : kManyTokens;
}

std::string LlamaModel::make_embedder(const LlamaOptions& options, const Adapters& adapters) {
  if (options.embeddings == "off") return "";
  // Longer texts are not what models learn to make vectors of, and cost a context of their own.
  constexpr uint32_t kMostTokens = 8192;
  std::string why;
  embedder_ = LlamaEmbedder::create(
      model_,
      {.pooling = options.embeddings,
       .context_tokens = std::min({kMostTokens, info_.trained_tokens, llama_n_ctx(context_)}),
       .batch_tokens = options.batch_tokens,
       .threads = threads_of(options),
       .flash_attention = options.flash_attention,
       .adapters = adapters.adapters,
       .scales = adapters.scales},
      why);
  if (embedder_ == nullptr) return with_reason("--embeddings: " + why);
  info_.embedding_width = embedder_->width();
  info_.embedding_tokens = embedder_->most_tokens();
  return "";
}

std::string LlamaModel::choose_gpus(const LlamaOptions& options, const GpuSearch& search) {
  if (options.gpu_layers == 0) {
    info_.placement.why_cpu = "no layer is to be on a GPU (--gpu-layers 0)";
    return "";
  }
  info_.placement.why_cpu = why_no_gpu(search);
  if (options.gpu_layers > 0 && search.gpus.empty()) {
    return "--gpu-layers " + std::to_string(options.gpu_layers) +
           ", but no GPU can be used: " + info_.placement.why_cpu +
           ". With --gpu-layers 0 the CPU computes";
  }
  for (const FoundGpu& gpu : search.gpus) info_.placement.gpus.push_back(gpu.device);
  return "";
}

std::string LlamaModel::make_context(const LlamaOptions& options) {
  llama_context_params context_options = llama_context_default_params();
  const uint32_t ids = options.sequences + (options.unified ? 1 : 0);
  const uint64_t asked =
      options.context_tokens == 0 ? info_.trained_tokens : options.context_tokens;
  // llama.cpp rounds up too, but later: by then it has made the batch as small as the context, and
  // it stops the process if a batch has less than one token for each sequence.
  const uint64_t rounded = (asked + kContextStep - 1) / kContextStep * kContextStep;
  const uint64_t wanted = options.unified ? rounded : rounded * ids;
  if (wanted > std::numeric_limits<uint32_t>::max()) {
    return "a context of " + std::to_string(asked) + (options.unified ? "" : " for each sequence") +
           " is too large";
  }
  const auto context_tokens = static_cast<uint32_t>(wanted);
  const uint32_t threads = threads_of(options);
  context_options.n_ctx = context_tokens;
  context_options.n_batch = context_options.n_ubatch = std::max(ids, options.batch_tokens);
  context_options.n_seq_max = ids;
  context_options.n_threads = context_options.n_threads_batch = static_cast<int32_t>(threads);
  context_options.type_k = type_named(options.k_type)->type;
  context_options.type_v = type_named(options.v_type)->type;
  context_options.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  context_options.kv_unified = options.unified;
  context_options.swa_full = false;
  context_options.no_perf = true;
  if (std::string why = check_memory(options, context_options); !why.empty()) return why;
  context_ = llama_init_from_model(model_, context_options);
  if (context_ == nullptr) {
    refresh_memory(info_.placement.gpus);
    const std::string hint = context_hint(first_error(), info_.placement);
    return with_reason("no context of " + std::to_string(context_tokens) + " tokens for " +
                       options.path) +
           (hint.empty() ? "" : ": " + hint);
  }
  return "";
}

// llama.cpp writes to all of a context's memory when it creates one, and the system kills a process
// that uses more than there is. So a context of the smallest size is measured first.
std::string LlamaModel::check_memory(const LlamaOptions& options,
                                     const llama_context_params& wanted) const {
  const std::optional<FreeMemory> free =
      options.memory_bytes == 0 ? free_memory() : FreeMemory{options.memory_bytes, "the caller"};
  const uint32_t parts = options.unified ? 1 : wanted.n_seq_max;
  llama_context_params small = wanted;
  small.n_ctx = kContextStep * parts;
  if (small.n_ctx >= wanted.n_ctx) return "";
  EngineTraits traits;
  std::vector<ComputeDevice> gpus = info_.placement.gpus;
  {
    llama_context* context = llama_init_from_model(model_, small);
    if (context == nullptr) return "";  // Making the real one reports why.
    std::string why;
    const auto sequences = LlamaSequences::create(
        context, {options.sequences, options.unified, false, options.shares}, why);
    if (sequences != nullptr) traits = sequences->traits();
    // Asked while the small one exists: the real one needs the same room to compute in.
    refresh_memory(gpus);
    llama_free(context);
  }
  ContextNeeds needs{.tokens = wanted.n_ctx / parts,
                     .parts = parts,
                     .bytes_per_token = traits.bytes_per_token,
                     .fixed_bytes = traits.checkpoint_bytes * wanted.n_seq_max};
  Room on_gpus;
  if (!gpus.empty() && options.memory_bytes == 0) {
    // The output counts as the last layer but has no K and V.
    needs.gpu_share = static_cast<double>(info_.placement.gpu_layers - 1) /
                      static_cast<double>(std::max(1U, info_.placement.layers - 1));
    for (const ComputeDevice& gpu : gpus) {
      on_gpus.bytes += gpu.free_bytes;
      on_gpus.name += (on_gpus.name.empty() ? "" : " + ") + name_of(gpu);
    }
  }
  const Room host = free ? Room{free->bytes, free->limit}
                         : Room{std::numeric_limits<uint64_t>::max(), "the machine"};
  return why_no_context(needs, host, on_gpus);
}

// Only these kinds of vocabulary put a space in front, and even those may lack the sign.
void LlamaModel::find_sign() {
  const auto kind = llama_vocab_type(vocabulary_);
  if (kind != LLAMA_VOCAB_TYPE_SPM && kind != LLAMA_VOCAB_TYPE_UGM) return;
  Result<std::vector<Token>> sign = tokenize({&kSign, 1}, false, false);
  if (!sign || sign->size() < 2) return;
  std::string text;
  append_text(sign->front(), true, text);
  if (text.starts_with(' ')) sign_ = *std::move(sign);
}

Result<void> LlamaModel::decode(std::span<const BatchItem> batch) {
  if (batch.empty() || batch.size() > batch_->room) {
    return Error(Errc::invalid_argument, "a batch of this many tokens",
                 static_cast<uint32_t>(batch.size()));
  }
  llama_batch& raw = batch_->batch;
  raw.n_tokens = static_cast<int32_t>(batch.size());
  wants_logits_.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchItem& item = batch[i];
    if (item.token >= info_.vocabulary) {
      return Error(Errc::invalid_argument, "no such token", item.token);
    }
    if (to_index(item.sequence) >= sequences_->traits().sequences) {
      return Error(Errc::invalid_argument, "no such sequence", to_index(item.sequence));
    }
    // A recurrent memory never reports that it is full.
    if (item.position >= sequences_->traits().context_tokens) {
      return Error(Errc::out_of_blocks, "no room in the context", item.position);
    }
    raw.token[i] = static_cast<llama_token>(item.token);
    raw.pos[i] = static_cast<llama_pos>(item.position);
    raw.n_seq_id[i] = 1;
    raw.seq_id[i][0] = static_cast<llama_seq_id>(item.sequence);
    raw.logits[i] = item.logits ? 1 : 0;
    wants_logits_.push_back(item.logits ? 1 : 0);
  }
  const int32_t code = llama_decode(context_, raw);
  sequences_->decoded(code == 0 ? batch : std::span<const BatchItem>());
  if (code == 0) return {};
  wants_logits_.clear();
  if (code == 1) return Error(Errc::out_of_blocks, "no room in llama.cpp's context");
  if (code == -1) return Error(Errc::invalid_argument, "llama.cpp refuses the batch");
  return Error(Errc::wrong_state, "llama.cpp's forward pass failed", static_cast<uint32_t>(code));
}

std::span<const float> LlamaModel::logits(uint32_t index) {
  if (index >= wants_logits_.size() || wants_logits_[index] == 0) return {};
  const float* values = llama_get_logits_ith(context_, static_cast<int32_t>(index));
  if (values == nullptr) return {};
  return {values, info_.vocabulary};
}

Result<std::vector<Token>> LlamaModel::tokenize(std::string_view text, bool add_special,
                                                bool parse_special) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2) {
    return Error(Errc::invalid_argument, "text of more than a gigabyte");
  }
  try {
    std::vector<Token> tokens(text.size() + 8);
    const auto call = [&] {
      return llama_tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()),
                            reinterpret_cast<llama_token*>(tokens.data()),
                            static_cast<int32_t>(tokens.size()), add_special, parse_special);
    };
    int32_t count = call();
    if (count < 0 && count != std::numeric_limits<int32_t>::min()) {
      tokens.resize(static_cast<size_t>(-count));
      count = call();
    }
    if (count < 0) return Error(Errc::invalid_argument, "the vocabulary cannot express the text");
    tokens.resize(static_cast<size_t>(count));
    return tokens;
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for the text's tokens");
  } catch (const std::exception&) {
    return Error(Errc::invalid_argument, "the vocabulary cannot express the text");
  }
}

Result<std::vector<Token>> LlamaModel::tokenize_rest(std::string_view text,
                                                     bool parse_special) const {
  if (sign_.empty()) return tokenize(text, false, parse_special);
  // llama.cpp always puts the space there. So put another character in front, and remove that
  // afterwards.
  STEMMA_TRY(std::vector<Token> tokens,
             tokenize(std::string(1, kSign).append(text), false, parse_special));
  if (!std::ranges::equal(std::span(tokens).first(std::min(tokens.size(), sign_.size())), sign_)) {
    return tokenize(text, false, parse_special);
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(sign_.size()));
  return tokens;
}

void LlamaModel::append_text(Token token, bool special, std::string& text) const {
  if (token >= static_cast<Token>(llama_vocab_n_tokens(vocabulary_))) return;
  char piece[256];
  const auto id = static_cast<llama_token>(token);
  const int32_t length = llama_token_to_piece(vocabulary_, id, piece, sizeof piece, 0, special);
  if (length >= 0) {
    text.append(piece, static_cast<size_t>(length));
    return;
  }
  const size_t before = text.size();
  text.resize(before + static_cast<size_t>(-length));
  llama_token_to_piece(vocabulary_, id, text.data() + before, -length, 0, special);
}

bool LlamaModel::ends_generation(Token token) const noexcept {
  return token < info_.vocabulary &&
         llama_vocab_is_eog(vocabulary_, static_cast<llama_token>(token));
}

bool LlamaModel::is_special(Token token) const noexcept {
  if (token >= info_.vocabulary) return false;
  const uint32_t attributes = llama_vocab_get_attr(vocabulary_, static_cast<llama_token>(token));
  return (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0 ||
         std::ranges::binary_search(mistyped_, token);
}

// Some converters mark special tokens they do not know as user-defined, and llama.cpp makes those
// out of any text. But ordinary words can be user-defined too: runs of spaces, HTML tags.
void LlamaModel::find_mistyped() {
  for (Token token = 0; token < info_.vocabulary; ++token) {
    const uint32_t attributes = llama_vocab_get_attr(vocabulary_, static_cast<llama_token>(token));
    if ((attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) == 0) continue;
    std::string text;
    append_text(token, true, text);
    if (looks_special(text, info_.chat_template)) mistyped_.push_back(token);
  }
}

Result<std::vector<float>> LlamaModel::embed(std::span<const Token> tokens) {
  if (embedder_ == nullptr) return LanguageModel::embed(tokens);
  for (const Token token : tokens) {
    if (token >= info_.vocabulary) return Error(Errc::invalid_argument, "no such token", token);
  }
  return embedder_->embed(tokens);
}

Result<std::string> LlamaModel::apply_own_template(std::string_view chat_template,
                                                   std::span<const ChatMessage> messages,
                                                   bool add_generation_prompt) const {
  const std::string source(chat_template);
  std::vector<llama_chat_message> raw;
  size_t bytes = 256;
  for (const ChatMessage& message : messages) {
    raw.push_back({message.role.c_str(), message.content.c_str()});
    bytes += 2 * (message.role.size() + message.content.size());
  }
  std::string text(bytes, '\0');
  for (int round = 0; round < 2; ++round) {
    const int32_t length =
        llama_chat_apply_template(source.c_str(), raw.data(), raw.size(), add_generation_prompt,
                                  text.data(), static_cast<int32_t>(text.size()));
    if (length < 0) return Error(Errc::unsupported, "llama.cpp's list has no such template");
    const bool fits = static_cast<size_t>(length) <= text.size();
    text.resize(static_cast<size_t>(length));
    if (fits) return text;
  }
  return Error(Errc::unsupported, "llama.cpp's template does not settle");
}

}  // namespace stemma::engine
