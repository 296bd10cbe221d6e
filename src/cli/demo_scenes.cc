#include "cli/demo_scenes.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "engine/paged/random.h"

namespace stemma::cli {
namespace {

using paged::Random;
using paged::Text;

Text some_tokens(Random& random, uint32_t count) {
  Text text;
  for (uint32_t i = 0; i < count; ++i) text.tokens.push_back(random.below(500));
  return text;
}

Text picture(Random& random) {
  Text text;
  text.tokens.assign(48, 1);  // Placeholders.
  MediaItem item{.kind = MediaKind::image, .offset = 0, .length = 48};
  for (uint8_t& byte : item.digest) byte = static_cast<uint8_t>(random.below(256));
  text.media.push_back(item);
  return text;
}

void append(Text& text, const Text& more) {
  for (MediaItem item : more.media) {
    item.offset += text.size();
    text.media.push_back(item);
  }
  text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
}

paged::ModelConfig full_model(uint64_t seed) {
  paged::ModelConfig config;
  config.vocab_tokens = 512;
  config.dim = 64;
  config.heads = 8;
  config.kv_heads = 2;
  config.hidden = 128;
  config.max_positions = 1024;
  config.layers = {0, 0, 0, 0};
  config.seed = seed;
  return config;
}

// Every third layer attends to everything; the others use a window or a recurrent state.
paged::ModelConfig hybrid_model(uint64_t seed) {
  paged::ModelConfig config = full_model(seed);
  config.groups = {{},
                   {.attention = Attention::window, .window_tokens = 64, .sink_tokens = 4},
                   {.attention = Attention::recurrent}};
  config.layers = {1, 2, 0, 1, 2, 0};
  return config;
}

// Runs all conversations of a scene and records the logits of every sampled position.
class Stage final : public paged::Listener {
 public:
  using Notes = std::map<std::vector<uint32_t>, std::vector<float>>;

  Stage(const Scene& scene, bool cached, const Progress& progress)
      : scene_(scene),
        cached_(cached),
        progress_(progress),
        model_(make_model(scene.model)),
        arena_(layout_of(scene)) {
    Options options;
    options.groups = arena_.layout().groups;
    options.block_io = &arena_;
    options.logits_bytes = 4 << 20;
    options.enabled = cached;
    cache_.push_back(PagedCache::create(options).value());
    const paged::Adapter adapter{&model_, Scope::make({.model = "the demo's weights"}).value()};
    paged::EngineOptions engine;
    engine.max_running = 4;
    engine.listener = this;
    engine_ =
        std::make_unique<paged::Engine>(cache_.front(), arena_, std::span(&adapter, 1), engine);
  }

  double run() {
    const auto begin = std::chrono::steady_clock::now();
    for (const Conversation& conversation : scene_.conversations) say(conversation, 0, {});
    while (engine_->step()) {
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() -
           noting_seconds_;
  }

  const paged::EngineCounts& counts() const { return engine_->counts(); }
  const Notes& notes() const { return notes_; }

  void on_logits(const paged::Request& request) override {
    // Recording belongs to the demo, not to the engine: its time is subtracted.
    const auto begin = std::chrono::steady_clock::now();
    std::vector<uint32_t> key = request.text.tokens;
    for (const MediaItem& item : request.text.media) {
      key.push_back(item.offset);
      key.insert(key.end(), item.digest.begin(), item.digest.end());
    }
    notes_.insert_or_assign(std::move(key), request.logits);
    noting_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void on_finished(const paged::Request& request) override {
    const auto found = speakers_.find(request.id);
    if (found == speakers_.end()) return;  // One of several continuations.
    const auto [conversation, turn] = found->second;
    speakers_.erase(found);
    progress_();
    if (turn + 1 < conversation->turns.size()) say(*conversation, turn + 1, request.text);
  }

 private:
  static paged::KvLayout layout_of(const Scene& scene) {
    // There is room for the working set. `stemma bench` measures caches that are too small.
    std::vector<paged::GroupMemory> memory;
    for (const paged::LayerGroup& group : scene.model.groups) {
      const bool recurrent = group.attention == Attention::recurrent;
      memory.push_back({.block_tokens = 16, .capacity_blocks = recurrent ? 256U : 2048U});
    }
    return make_layout(scene.model, memory);
  }

  void say(const Conversation& conversation, uint32_t turn, const Text& before) {
    paged::RequestSpec spec;
    spec.prompt = before;
    append(spec.prompt, conversation.turns[turn]);
    spec.max_new_tokens = conversation.new_tokens;
    spec.sample_seed = conversation.sample_seed;
    spec.best_of = cached_ ? conversation.best_of : 1;
    speakers_[engine_->submit(spec).value()] = {&conversation, turn};
    // Without a cache nothing can be forked: every continuation computes the prompt itself.
    for (uint32_t i = 1; !cached_ && i < conversation.best_of; ++i) {
      spec.sample_seed = paged::branch_seed(conversation.sample_seed, i);
      engine_->submit(spec).value();
    }
  }

  const Scene& scene_;
  const bool cached_;
  const Progress& progress_;
  paged::Model model_;
  paged::KvArena arena_;
  std::vector<PagedCache> cache_;
  std::unique_ptr<paged::Engine> engine_;
  std::map<uint64_t, std::pair<const Conversation*, uint32_t>> speakers_;  // By request.
  Notes notes_;
  double noting_seconds_ = 0;
};

}  // namespace

uint32_t Scene::requests() const {
  size_t count = 0;
  for (const Conversation& conversation : conversations) count += conversation.turns.size();
  return static_cast<uint32_t>(count);
}

std::vector<Scene> make_scenes(uint32_t requests, uint64_t seed) {
  Random random(seed);
  const auto share = [&](uint32_t percent) { return std::max(1U, requests * percent / 100); };
  std::vector<Scene> scenes;

  // Questions behind one of a few long system prompts.
  const auto questions = [&](uint32_t count, uint32_t system_tokens) {
    std::vector<Text> systems;
    for (uint32_t i = 0; i < 3; ++i) systems.push_back(some_tokens(random, system_tokens));
    std::vector<Conversation> out(count);
    for (Conversation& conversation : out) {
      Text prompt = systems[random.below(3)];
      append(prompt, some_tokens(random, random.between(8, 32)));
      conversation.turns = {std::move(prompt)};
    }
    return out;
  };
  scenes.push_back({"system prompts", "many questions behind three system prompts",
                    full_model(random.next()), questions(share(40), 320)});

  Scene chats{"chats", "conversations of five turns", full_model(random.next()), {}};
  for (uint32_t i = share(20) / 5 + 1; i > 0; --i) {
    Conversation chat{.turns = {some_tokens(random, 96)}, .sample_seed = i};
    while (chat.turns.size() < 5) chat.turns.push_back(some_tokens(random, random.between(12, 40)));
    chats.conversations.push_back(std::move(chat));
  }
  scenes.push_back(std::move(chats));

  Scene beams{
      "best of four", "four continuations of each prompt (forks)", full_model(random.next()), {}};
  for (uint32_t i = share(8); i > 0; --i) {
    beams.conversations.push_back(
        {.turns = {some_tokens(random, 192)}, .best_of = 4, .sample_seed = i});
  }
  scenes.push_back(std::move(beams));

  Scene pictures{"pictures", "questions about four pictures", full_model(random.next()), {}};
  std::vector<Text> album;
  for (uint32_t i = 0; i < 4; ++i) {
    Text page = some_tokens(random, 64);
    append(page, picture(random));
    album.push_back(std::move(page));
  }
  for (uint32_t i = share(12); i > 0; --i) {
    Text prompt = album[random.below(4)];
    append(prompt, some_tokens(random, random.between(8, 24)));
    pictures.conversations.push_back({.turns = {std::move(prompt)}});
  }
  scenes.push_back(std::move(pictures));

  Scene again{"asked before",
              "the same few prompts again and again (logits)",
              full_model(random.next()),
              {}};
  const Text asked[] = {some_tokens(random, 180), some_tokens(random, 200)};
  for (uint32_t i = share(10); i > 0; --i) {
    again.conversations.push_back({.turns = {asked[i % 2]}, .new_tokens = 4});
  }
  scenes.push_back(std::move(again));

  scenes.push_back({"hybrid model", "window and recurrent layers, system prompts",
                    hybrid_model(random.next()), questions(share(10), 256)});
  return scenes;
}

SceneResult run_scene(const Scene& scene, const Progress& progress) {
  Stage with(scene, true, progress);
  Stage without(scene, false, progress);
  SceneResult result;
  result.seconds = with.run();
  result.seconds_without = without.run();
  const paged::EngineCounts& counts = with.counts();
  result.requests = scene.requests();
  result.prompt_tokens = counts.leased_tokens;
  result.reused_tokens = counts.reused_tokens;
  result.computed_tokens = counts.computed_tokens;
  result.computed_tokens_without = without.counts().computed_tokens;
  result.answered_tokens = counts.sampled_tokens;
  result.logits_hits = counts.logits_hits;
  result.forks = counts.forks;
  result.logits = without.notes().size();
  for (const auto& [text, logits] : without.notes()) {
    const auto found = with.notes().find(text);
    const bool same =
        found != with.notes().end() && found->second.size() == logits.size() &&
        std::memcmp(found->second.data(), logits.data(), logits.size() * sizeof(float)) == 0;
    result.different += same ? 0 : 1;
  }
  if (with.notes().size() != without.notes().size()) ++result.different;
  return result;
}

}  // namespace stemma::cli
