#include "server/trace/recorder.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <exception>
#include <random>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "json/json.h"
#include "key/key_chain.h"
#include "key/sha256.h"
#include "server/trace/numbers.h"

namespace stemma::server {

namespace {

constexpr uint32_t kUnknown = 0xFFFF'FFFFU;

const char* to_text(FinishReason finish) {
  switch (finish) {
    case FinishReason::end_turn: return "end_turn";
    case FinishReason::tool_use: return "tool_use";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::unknown: break;
  }
  return nullptr;
}

std::vector<TraceDigest> digests_of(const Scope& scope, std::span<const Token> prompt,
                                    uint32_t block_tokens) {
  std::vector<TraceDigest> digests(prompt.size() / block_tokens);
  key::KeyChain chain(scope, prompt, {}, block_tokens);
  for (uint32_t i = 0; i < digests.size(); ++i) {
    digests[i] = TraceDigest::of(chain.at((i + 1) * block_tokens).bytes);
  }
  return digests;
}

// Two tenants may use one name for different conversations.
TraceDigest digest_of(const Scope& scope, std::string_view session) {
  key::Sha256 hash;
  hash.update(scope.digest());
  hash.update({reinterpret_cast<const uint8_t*>(session.data()), session.size()});
  return TraceDigest::of(hash.finish());
}

uint64_t random_start() {
  std::random_device device;
  return uint64_t{device()} << 32U | device();
}

// What is known about a request when it is accepted.
struct Taken {
  uint32_t input_tokens = 0;
  std::optional<TraceDigest> session;
};

}  // namespace

// ---- One recording ------------------------------------------------------------------------------

// Locks: numbering_ before lines_. Slow work happens under numbering_, which the engine's thread
// never takes.
class TraceRecorder::Recording {
 public:
  Recording(uint64_t number, uint32_t block_tokens, const Options& options,
            std::shared_ptr<HttpReply> reply)
      : number_(number),
        block_tokens_(block_tokens),
        options_(options),
        begun_ns_(options.clock->now_ns()),
        blocks_(random_start()),
        sessions_(random_start()),
        reply_(std::move(reply)) {}

  uint64_t number() const noexcept { return number_; }
  uint32_t block_tokens() const noexcept { return block_tokens_; }
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }

  void open() {
    reply_->begin(200, kTraceType,
                  {{"Stemma-Recording", std::to_string(number_)}, {"Cache-Control", "no-store"}});
    const base::MutexLock lock(lines_);
    out_ = R"({"stemma_trace":1,"block_tokens":)";
    append_json_number(out_, uint64_t{block_tokens_});
    out_ += "}\n";
    send();
  }

  // Returns its place in the order, for ended(); nothing if the recording is over.
  std::optional<uint64_t> take(const Taken& request, std::span<const TraceDigest> blocks) try {
    const base::MutexLock numbering(numbering_);
    if (over()) return {};
    // The known blocks of a prompt are a prefix of it.
    const auto known = std::partition_point(
        blocks.begin(), blocks.end(), [this](const TraceDigest& block) STEMMA_REQUIRES(numbering_) {
          return blocks_.find(block) != 0;
        });
    Entry entry;
    entry.input_tokens = request.input_tokens;
    entry.node = known == blocks.begin() ? 0 : blocks_.find(*(known - 1));
    entry.fresh = static_cast<uint32_t>(blocks.end() - known);
    if (entry.fresh > options_.blocks - blocks_.size()) {
      finish("it has more different blocks than can be told apart");
      return {};
    }
    if (request.session) {
      entry.session = sessions_.find(*request.session);
      if (entry.session == 0 && sessions_.size() == options_.sessions) {
        finish("it has more sessions than can be told apart");
        return {};
      }
      if (entry.session == 0) {
        turns_.push_back(0);
        entry.session = sessions_.add(*request.session);
      }
      entry.turn = ++turns_[entry.session - 1];
    }
    for (auto block = known; block != blocks.end(); ++block) blocks_.add(*block);
    const base::MutexLock lock(lines_);
    entry.time_ns = options_.clock->now_ns() - begun_ns_;
    waiting_.push_back(entry);
    if (waiting_.size() > options_.waiting) waiting_.front().ended = true;
    write_ended();
    return written_ + waiting_.size() - 1;
  } catch (const std::bad_alloc&) {
    give_up();
    return {};
  }

  void ended(uint64_t place, FinishReason finish, uint32_t output_tokens) try {
    const base::MutexLock lock(lines_);
    // Its line may have been written already, without this.
    if (over() || place < written_) return;
    Entry& entry = waiting_[place - written_];
    entry.finish = finish;
    entry.output_tokens = output_tokens;
    entry.ended = true;
    write_ended();
  } catch (const std::bad_alloc&) {
    give_up();
  }

  // Writes all waiting requests, with what is known of them.
  void finish(const char* why) {
    const base::MutexLock lock(lines_);
    if (over()) return;
    for (Entry& entry : waiting_) entry.ended = true;
    write_ended();
    out_ = R"({"end":)";
    append_json_number(out_, written_);
    out_ += "}\n";
    send();
    if (over()) return;
    reply_->end();
    set_over(why);
  }
  // Ends the recording without writing anything more.
  void drop(const char* why) {
    const base::MutexLock lock(lines_);
    if (!over()) set_over(why);
  }
  void give_up() { drop("there was no memory for more of it"); }

  // The log line for its end.
  std::string tell_end() {
    const base::MutexLock lock(lines_);
    return "recording " + std::to_string(number_) + " ended, " + std::to_string(written_) +
           " requests: " + why_;
  }

 private:
  struct Entry {
    uint64_t time_ns = 0;
    uint32_t input_tokens = 0;
    uint32_t output_tokens = kUnknown;
    uint32_t session = 0;  // 0 if the request named none.
    uint32_t turn = 0;
    uint32_t node = 0;
    uint32_t fresh = 0;
    FinishReason finish = FinishReason::unknown;
    bool ended = false;
  };

  // Writes all ended requests at the front, in one piece.
  void write_ended() STEMMA_REQUIRES(lines_) {
    out_.clear();
    while (!waiting_.empty() && waiting_.front().ended) {
      append(waiting_.front());
      waiting_.pop_front();
      ++written_;
    }
    send();
  }
  void append(const Entry& entry) STEMMA_REQUIRES(lines_) {
    const auto field = [this](const char* name, uint64_t value) STEMMA_REQUIRES(lines_) {
      out_ += name;
      append_json_number(out_, value);
    };
    const uint64_t us = entry.time_ns / 1000;
    field(R"({"timestamp":)", us / 1000);
    if (us % 1000 != 0) {
      char part[8];
      std::snprintf(part, sizeof part, ".%03u", static_cast<uint32_t>(us % 1000));
      out_ += part;
    }
    field(R"(,"input_length":)", entry.input_tokens);
    if (entry.output_tokens != kUnknown) field(R"(,"output_length":)", entry.output_tokens);
    if (entry.session != 0) {
      field(R"(,"session_id":)", entry.session);
      field(R"(,"turn":)", entry.turn);
    }
    if (const char* finish = to_text(entry.finish); finish != nullptr) {
      out_ += R"(,"finish_reason":")";
      out_ += finish;
      out_ += '"';
    }
    field(R"(,"path":[)", entry.node);
    field(",", entry.fresh);
    out_ += "]}\n";
  }
  // The reply takes it without blocking, or reports that its client is gone or too far behind.
  void send() STEMMA_REQUIRES(lines_) {
    if (out_.empty() || over() || reply_->send(std::exchange(out_, {}))) return;
    set_over("its reader is gone, or reads too slowly");
  }
  void set_over(const char* why) STEMMA_REQUIRES(lines_) {
    why_ = why;
    over_.store(true, std::memory_order_release);
    waiting_.clear();
  }

  const uint64_t number_;
  const uint32_t block_tokens_;
  const Options options_;
  const uint64_t begun_ns_;
  std::atomic<bool> over_ = false;  // Written under lines_.

  base::Mutex numbering_;
  TraceNumbers blocks_ STEMMA_GUARDED_BY(numbering_);
  TraceNumbers sessions_ STEMMA_GUARDED_BY(numbering_);
  std::vector<uint32_t> turns_ STEMMA_GUARDED_BY(numbering_);  // By session number minus one.

  base::Mutex lines_;
  const std::shared_ptr<HttpReply> reply_;
  std::string out_ STEMMA_GUARDED_BY(lines_);
  std::deque<Entry> waiting_ STEMMA_GUARDED_BY(lines_);
  uint64_t written_ STEMMA_GUARDED_BY(lines_) = 0;
  const char* why_ STEMMA_GUARDED_BY(lines_) = "";
};

// ---- All of them --------------------------------------------------------------------------------

// Outlives the recorder while a client or a request may still call.
class TraceRecorder::Recordings : public std::enable_shared_from_this<Recordings> {
 public:
  using List = std::vector<std::shared_ptr<Recording>>;

  explicit Recordings(Options options) : options_(std::move(options)) {
    if (options_.clock == nullptr) options_.clock = &Clock::monotonic();
  }

  bool any() const noexcept { return count_.load(std::memory_order_relaxed) != 0; }

  std::optional<uint64_t> begin(const std::shared_ptr<HttpReply>& reply, uint32_t block_tokens) {
    std::shared_ptr<Recording> made;
    {
      const base::MutexLock lock(mutex_);
      if (closed_ || list_.size() >= options_.recordings) return {};
      made = std::make_shared<Recording>(++last_, block_tokens, options_, reply);
      list_.push_back(made);
      made->open();
      count_.store(static_cast<uint32_t>(list_.size()), std::memory_order_relaxed);
    }
    if (options_.log) {
      options_.log("recording " + std::to_string(made->number()) + " begins, in blocks of " +
                   std::to_string(block_tokens) + " tokens");
    }
    // The reply drops this callback when it is complete or its client is gone; until then the
    // callback holds the reply.
    reply->on_gone([reply, all = weak_from_this(), gone = std::weak_ptr(made)] {
      const std::shared_ptr<Recording> recording = gone.lock();
      if (recording == nullptr) return;
      recording->drop("its reader is gone");
      if (const auto recordings = all.lock()) recordings->remove(*recording);
    });
    return made->number();
  }

  List list() const {
    const base::MutexLock lock(mutex_);
    return list_;
  }
  // Removes a recording that is over.
  void remove(const Recording& recording) {
    std::shared_ptr<Recording> removed;
    {
      const base::MutexLock lock(mutex_);
      const auto found =
          std::ranges::find_if(list_, [&](const auto& each) { return each.get() == &recording; });
      if (found == list_.end()) return;
      removed = std::move(*found);
      list_.erase(found);
      count_.store(static_cast<uint32_t>(list_.size()), std::memory_order_relaxed);
    }
    if (options_.log) options_.log(removed->tell_end());
  }
  void close() {
    const base::MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  Options options_;
  mutable base::Mutex mutex_;
  List list_ STEMMA_GUARDED_BY(mutex_);
  uint64_t last_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool closed_ STEMMA_GUARDED_BY(mutex_) = false;
  std::atomic<uint32_t> count_ = 0;  // Size of list_.
};

// ---- One request --------------------------------------------------------------------------------

class TraceRecorder::Request final : public RecordedRequest {
 public:
  Request(std::shared_ptr<Recordings> all, const Scope& scope, std::span<const Token> prompt,
          std::string_view session)
      : all_(std::move(all)) {
    what_.input_tokens = static_cast<uint32_t>(prompt.size());
    if (!session.empty()) what_.session = digest_of(scope, session);
    for (std::shared_ptr<Recording>& recording : all_->list()) {
      if (recording->over()) continue;
      const auto same = std::ranges::find_if(parts_, [&](const Part& part) {
        return part.recording->block_tokens() == recording->block_tokens();
      });
      Part part;
      part.blocks = same != parts_.end() ? same->blocks
                                         : digests_of(scope, prompt, recording->block_tokens());
      part.recording = std::move(recording);
      parts_.push_back(std::move(part));
    }
  }

  void taken() override {
    {
      const base::MutexLock lock(mutex_);
      take();
    }
    remove_over();
  }
  void ended(FinishReason finish, uint32_t output_tokens) override {
    {
      const base::MutexLock lock(mutex_);
      // Its client must not know of the end before it has its place.
      take();
      for (const Part& part : parts_) {
        if (part.place) part.recording->ended(*part.place, finish, output_tokens);
      }
    }
    remove_over();
  }

 private:
  struct Part {
    std::shared_ptr<Recording> recording;
    std::vector<TraceDigest> blocks;
    std::optional<uint64_t> place;
  };
  void take() STEMMA_REQUIRES(mutex_) {
    if (taken_) return;
    taken_ = true;
    for (Part& part : parts_) {
      part.place = part.recording->take(what_, part.blocks);
      part.blocks = {};
    }
  }
  void remove_over() {
    for (const Part& part : parts_) {
      if (part.recording->over()) all_->remove(*part.recording);
    }
  }

  const std::shared_ptr<Recordings> all_;
  Taken what_;
  std::vector<Part> parts_;
  base::Mutex mutex_;  // Locked before those of recordings. Guards the places and blocks of parts_.
  bool taken_ STEMMA_GUARDED_BY(mutex_) = false;
};

// ---- The recorder -------------------------------------------------------------------------------

TraceRecorder::TraceRecorder(Options options)
    : recordings_(std::make_shared<Recordings>(std::move(options))) {}

TraceRecorder::~TraceRecorder() { end_all(); }

std::optional<uint64_t> TraceRecorder::begin(const std::shared_ptr<HttpReply>& reply,
                                             uint32_t block_tokens) {
  return recordings_->begin(reply, block_tokens);
}

bool TraceRecorder::end(uint64_t recording) {
  for (const std::shared_ptr<Recording>& each : recordings_->list()) {
    if (each->number() != recording) continue;
    each->finish("it was asked to");
    recordings_->remove(*each);
    return true;
  }
  return false;
}

void TraceRecorder::end_all() {
  recordings_->close();
  for (const std::shared_ptr<Recording>& each : recordings_->list()) {
    each->finish("the server is ending");
    recordings_->remove(*each);
  }
}

bool TraceRecorder::records() const noexcept { return recordings_->any(); }

std::shared_ptr<RecordedRequest> TraceRecorder::look(const Scope& scope,
                                                     std::span<const Token> prompt,
                                                     std::string_view session) try {
  if (!records()) return nullptr;
  return std::make_shared<Request>(recordings_, scope, prompt, session);
} catch (const std::bad_alloc&) {
  // A trace without this request would be wrong, but the request must not fail.
  for (const std::shared_ptr<Recording>& each : recordings_->list()) {
    each->give_up();
    recordings_->remove(*each);
  }
  return nullptr;
}

// ---- Between a scheduler and a listener ---------------------------------------------------------

namespace {

class TellingListener final : public Listener {
 public:
  TellingListener(std::shared_ptr<RecordedRequest> request, std::shared_ptr<Listener> listener)
      : request_(std::move(request)), listener_(std::move(listener)) {}

  void begun(const AnswerBegun& begun) override { listener_->begun(begun); }
  void prompt(std::vector<TokenLogprob>&& logprobs) override {
    listener_->prompt(std::move(logprobs));
  }
  void piece(Piece piece) override { listener_->piece(std::move(piece)); }
  bool calls_tools(uint32_t choice) override {
    const bool calls = listener_->calls_tools(choice);
    if (calls && finish_ == FinishReason::end_turn) finish_ = FinishReason::tool_use;
    return calls;
  }
  void ended(ChoiceEnd end) override {
    // Of several choices, report the one that was cut off: it would have continued.
    if (end.cause == StopCause::length) finish_ = FinishReason::length;
    listener_->ended(std::move(end));
  }
  void done(const Summary& summary) override {
    request_->ended(finish_, summary.generated_tokens);
    listener_->done(summary);
  }
  void cut_off(uint32_t generated_tokens) override {
    cut_off_tokens_ = generated_tokens;
    listener_->cut_off(generated_tokens);
  }
  void failed(const Error& error, const std::string& message, bool overloaded) override {
    request_->ended(FinishReason::cancelled, cut_off_tokens_);
    listener_->failed(error, message, overloaded);
  }

 private:
  const std::shared_ptr<RecordedRequest> request_;
  const std::shared_ptr<Listener> listener_;
  FinishReason finish_ = FinishReason::end_turn;
  uint32_t cut_off_tokens_ = 0;
};

}  // namespace

std::shared_ptr<Listener> tell_too(std::shared_ptr<RecordedRequest> request,
                                   std::shared_ptr<Listener> listener) {
  return std::make_shared<TellingListener>(std::move(request), std::move(listener));
}

}  // namespace stemma::server
