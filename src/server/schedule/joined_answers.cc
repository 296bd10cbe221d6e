#include "server/schedule/joined_answers.h"

#include <algorithm>
#include <utility>

namespace stemma::server {

class JoinedAnswers::Member final : public Listener {
 public:
  Member(std::shared_ptr<JoinedAnswers> all, uint32_t prompt)
      : all_(std::move(all)),
        first_choice_(prompt * all_->options_.choices),
        opened_(all_->options_.choices, 0) {
    if (prompt < all_->options_.echoes.size()) echo_ = all_->options_.echoes[prompt];
  }

  void begun(const AnswerBegun& begun) override {
    // The first one to begin reports for all: their sum is unknown until all have begun.
    if (!std::exchange(all_->begun_, true)) all_->listener_->begun(begun);
  }
  void prompt(std::vector<TokenLogprob>&& logprobs) override { prompt_ = std::move(logprobs); }
  void piece(Piece piece) override {
    open(piece.choice);
    piece.choice += first_choice_;
    all_->listener_->piece(std::move(piece));
  }
  bool calls_tools(uint32_t choice) override {
    return all_->listener_->calls_tools(first_choice_ + choice);
  }
  void ended(ChoiceEnd end) override {
    open(end.choice);
    end.choice += first_choice_;
    all_->listener_->ended(std::move(end));
  }
  void done(const Summary& summary) override {
    all_->add(summary);
    std::exchange(all_, nullptr)->end(1);
  }
  void cut_off(uint32_t generated_tokens) override { all_->listener_->cut_off(generated_tokens); }
  void failed(const Error& error, const std::string& message, bool overloaded) override {
    all_->fail({error, message, overloaded});
    std::exchange(all_, nullptr)->end(1);
  }

 private:
  // The echo comes before a choice's own text.
  void open(uint32_t choice) {
    if (std::exchange(opened_[choice], uint8_t{1}) != 0) return;
    if (echo_.empty() && prompt_.empty()) return;
    all_->listener_->piece({.choice = first_choice_ + choice, .text = echo_, .logprobs = prompt_});
  }

  std::shared_ptr<JoinedAnswers> all_;  // null once it has ended.
  const uint32_t first_choice_;
  std::string echo_;
  std::vector<TokenLogprob> prompt_;
  std::vector<uint8_t> opened_;
};

JoinedAnswers::JoinedAnswers(std::shared_ptr<Listener> listener, Options options)
    : listener_(std::move(listener)), options_(std::move(options)), left_(options_.prompts) {}

std::shared_ptr<Listener> JoinedAnswers::member(uint32_t prompt) {
  return std::make_shared<Member>(shared_from_this(), prompt);
}

void JoinedAnswers::submitted(uint64_t number) {
  bool cancelled = false;
  {
    const base::Lock lock(mutex_);
    numbers_.push_back(number);
    cancelled = cancelled_;
  }
  if (cancelled) options_.cancel(number);
}

void JoinedAnswers::refused(uint32_t prompts, const Error& why, bool overloaded) {
  fail({why, why.message(), overloaded});
  end(prompts);
}

void JoinedAnswers::cancel() {
  std::vector<uint64_t> numbers;
  {
    const base::Lock lock(mutex_);
    cancelled_ = true;
    numbers = numbers_;
  }
  for (const uint64_t number : numbers) options_.cancel(number);
}

void JoinedAnswers::fail(Failure failure) {
  {
    const base::Lock lock(mutex_);
    if (failure_ != nullptr) return;  // The failure caused the others to be cancelled.
    failure_ = std::make_unique<Failure>(std::move(failure));
  }
  cancel();
}

void JoinedAnswers::add(const Summary& summary) {
  const base::Lock lock(mutex_);
  if (!std::exchange(has_summary_, true)) {
    summary_ = summary;
    return;
  }
  summary_.prompt_tokens += summary.prompt_tokens;
  summary_.cached_tokens += summary.cached_tokens;
  summary_.generated_tokens += summary.generated_tokens;
  summary_.tier_tokens += summary.tier_tokens;
  summary_.tier_bytes += summary.tier_bytes;
  SequenceReport& report = summary_.report;
  report.reused_tokens += summary.report.reused_tokens;
  report.evaluated_tokens += summary.report.evaluated_tokens;
  report.matched_tokens += summary.report.matched_tokens;
  for (size_t i = 0; i < report.steps.size(); ++i) report.steps[i] += summary.report.steps[i];
  // They ran at the same time.
  Timings& timings = summary_.timings;
  timings.queued_ns = std::max(timings.queued_ns, summary.timings.queued_ns);
  timings.prompt_ns = std::max(timings.prompt_ns, summary.timings.prompt_ns);
  timings.generated_ns = std::max(timings.generated_ns, summary.timings.generated_ns);
  summary_.tier_ns = std::max(summary_.tier_ns, summary.tier_ns);
}

void JoinedAnswers::end(uint32_t members) {
  std::unique_ptr<Failure> failure;
  Summary summary;
  {
    const base::Lock lock(mutex_);
    left_ -= members;
    if (left_ != 0) return;
    // No other thread calls any more.
    failure = std::move(failure_);
    summary = std::move(summary_);
  }
  if (failure != nullptr) {
    listener_->failed(failure->error, failure->message, failure->overloaded);
  } else {
    listener_->done(summary);
  }
}

}  // namespace stemma::server
