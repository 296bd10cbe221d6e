#include "oracle/plants.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stemma::oracle {
namespace {

using paged::Request;

class WrittenInPlace final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  Result<void> carry_out_copies(Request& request) override {
    std::vector<BlockCopy>& shared = shared_[request.id];
    shared.clear();
    for (const BlockCopy& copy : request.lease.copies()) {
      if (copy.target != kNoBlock) shared.push_back(copy);
    }
    return Engine::carry_out_copies(request);
  }
  void read_tables(Request& request) override {
    Engine::read_tables(request);
    for (const BlockCopy& copy : shared_[request.id]) {
      std::vector<BlockId>& table = request.tables[copy.group];
      std::replace(table.begin(), table.end(), copy.target, copy.source);
    }
  }
  void commit(Request& request) override {
    // Its writes are right for itself, so they are published as right; only the sharers are harmed.
    for (BlockCopy copy : shared_[request.id]) {
      copy.tokens = arena_.layout().groups[copy.group].block_tokens;
      arena_.KvArena::copy({&copy, 1}, [](void*, Result<void>) {}, nullptr);
    }
    Engine::commit(request);
  }

 private:
  std::map<uint64_t, std::vector<BlockCopy>> shared_;  // By request.
};

class WrongPosition final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  void read_tables(Request& request) override {
    Engine::read_tables(request);
    // The two blocks after what is computed; the engine itself reads them as it wrote them.
    const auto [found, fresh] = swapped_.try_emplace(request.started, 0);
    const uint32_t block_tokens = arena_.layout().groups[0].block_tokens;
    if (fresh) found->second = (request.computed + block_tokens - 1) / block_tokens;
    const size_t first = found->second;
    std::vector<BlockId>& table = request.tables[0];
    if (first + 1 < table.size()) std::swap(table[first], table[first + 1]);
  }

 private:
  std::map<uint64_t, size_t> swapped_;  // By admission.
};

class StateElsewhere final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  void save_checkpoint(Request& request) override {
    // Registers the state that it saved the time before.
    paged::RunningState now = request.state;
    const auto before = last_.find(request.id);
    if (before != last_.end()) request.state = before->second;
    Engine::save_checkpoint(request);
    request.state = now;
    last_[request.id] = std::move(now);
  }

 private:
  std::map<uint64_t, paged::RunningState> last_;
};

class WindowHole final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  void read_tables(Request& request) override {
    Engine::read_tables(request);
    for (GroupIndex g = 0; g < request.tables.size(); ++g) {
      const GroupOptions& group = arena_.layout().groups[g];
      if (group.attention != Attention::window || request.computed < 2) continue;
      // The block before the one that is being written, which any window still sees.
      const size_t block = (request.computed - 1) / group.block_tokens;
      if (block != request.computed / group.block_tokens) request.tables[g][block] = BlockId{0};
    }
  }
};

class MediaIgnored final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  Result<Lease> take_lease(const Request& request, const LeaseOptions& options) override {
    Request blind;
    blind.spec.adapter = request.spec.adapter;
    blind.text.tokens = request.text.tokens;
    return Engine::take_lease(blind, options);
  }
};

class PublishedUnwritten final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  void read_tables(Request& request) override {
    // The first time the engine looks at a prompt's blocks is before it writes to them.
    const bool first = request.generated() == 0 && request.computed == request.lease.committed();
    if (first) request.lease.commit(request.lease.length()).value();
    Engine::read_tables(request);
  }
  void commit(Request& request) override {
    if (request.computed >= request.lease.committed()) Engine::commit(request);
  }
};

class FenceIgnored final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  void end_lease(Request& request, const Retain* retain, Fence*) override {
    Engine::end_lease(request, retain, nullptr);
  }
};

class ScopeIgnored final : public paged::Engine {
 public:
  using Engine::Engine;

 protected:
  Result<Lease> take_lease(const Request& request, const LeaseOptions& options) override {
    Request first;
    first.spec.adapter = 0;
    first.text = request.text;
    LeaseOptions same = options;
    same.tenant = TenantId{1};
    return Engine::take_lease(first, same);
  }
};

template <class T>
EngineFactory make() {
  return [](PagedCache& cache, paged::KvArena& arena, std::span<const paged::Adapter> adapters,
            const paged::EngineOptions& options) -> std::unique_ptr<paged::Engine> {
    return std::make_unique<T>(cache, arena, adapters, options);
  };
}

}  // namespace

EngineFactory planted(Plant plant) {
  switch (plant) {
    case Plant::none: break;
    case Plant::written_in_place: return make<WrittenInPlace>();
    case Plant::wrong_position: return make<WrongPosition>();
    case Plant::state_elsewhere: return make<StateElsewhere>();
    case Plant::window_hole: return make<WindowHole>();
    case Plant::media_ignored: return make<MediaIgnored>();
    case Plant::published_unwritten: return make<PublishedUnwritten>();
    case Plant::fence_ignored: return make<FenceIgnored>();
    case Plant::scope_ignored: return make<ScopeIgnored>();
  }
  return make_engine;
}

}  // namespace stemma::oracle
