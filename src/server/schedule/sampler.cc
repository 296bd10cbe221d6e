#include "server/schedule/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/random.h"

namespace stemma::server {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr uint32_t kBlock = 256;  // Weights summed as floats before doubles take over.
constexpr uint32_t kLanes =
    16;  // Parallel sums, so that the order is the same for every register width.

// e^x for x <= 0, within 2 units in the last place; 0 below -87. Our own, because libraries differ
// in the last bit and a seed must mean the same everywhere. It has no branches, so that loops over
// it are vectorised.
inline float exp_negative(float x) noexcept {
  constexpr float kLog2e = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // Few bits, to keep n * kLn2High exact.
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number.
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  // The series of e^r up to r^7; |r| <= ln 2 / 2.
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // The low bits of `shifted` are n; they make 2^n.
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127U) << 23U;
  const float value = p * std::bit_cast<float>(exponent);
  // A mask gives 0 here, because a choice between two values would become a branch.
  const uint32_t mask = -static_cast<uint32_t>(x >= -87.0F);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & mask);
}

// More likely, or equally likely with a lower number.
bool before(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

struct Peak {
  float top = kNever;
  bool bad = false;  // A NaN or +inf is among them.
};

Peak find_peak(std::span<const float> logits) noexcept {
  std::array<float, kLanes> top;
  std::array<uint32_t, kLanes> bad{};
  top.fill(kNever);
  const size_t even = logits.size() / kLanes * kLanes;
  const auto look = [&](size_t i, uint32_t lane) {
    const float logit = logits[i];
    top[lane] = logit > top[lane] ? logit : top[lane];
    bad[lane] |= logit < std::numeric_limits<float>::infinity() ? 0U : 1U;
  };
  for (size_t i = 0; i < even; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) look(i + lane, lane);
  }
  for (size_t i = even; i < logits.size(); ++i) look(i, 0);
  return {*std::max_element(top.begin(), top.end()),
          std::find(bad.begin(), bad.end(), 1U) != bad.end()};
}

Token first_at(std::span<const float> logits, float top) noexcept {
  return static_cast<Token>(std::find(logits.begin(), logits.end(), top) - logits.begin());
}

// Finds the first unusable logit. Requires that there is one.
Error bad_logit(std::span<const float> logits) noexcept {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float logit) {
    return !(logit < std::numeric_limits<float>::infinity());
  });
  return {Errc::corrupt, "a logit is not a number", static_cast<uint32_t>(bad - logits.begin())};
}

// Returns the sum of the weights e^((logit - top) * scale) of up to kBlock logits, and stores them
// in `weights` if that is not null.
double weigh_block(std::span<const float> logits, float top, float scale, float* weights) noexcept {
  std::array<float, kBlock> local;
  float* const out = weights == nullptr ? local.data() : weights;
  const size_t n = logits.size();
  for (size_t i = 0; i < n; ++i) out[i] = exp_negative((logits[i] - top) * scale);
  std::array<float, kLanes> lanes{};
  const size_t even = n / kLanes * kLanes;
  for (size_t i = 0; i < even; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += out[i + lane];
  }
  double sum = 0.0;
  for (const float lane : lanes) sum += lane;
  for (size_t i = even; i < n; ++i) sum += out[i];
  return sum;
}

// The same for all logits; `weights` may be null.
double weigh(std::span<const float> logits, float top, float* weights) noexcept {
  double sum = 0.0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const size_t n = std::min<size_t>(kBlock, logits.size() - i);
    sum += weigh_block(logits.subspan(i, n), top, 1.0F, weights == nullptr ? nullptr : weights + i);
  }
  return sum;
}

// Buckets by a logit's distance below the top, in steps of 1/32; the last bucket has the rest.
constexpr uint32_t kBuckets = 1024;
uint32_t bucket_of(float logit, float top) noexcept {
  const float steps = (top - logit) * 32.0F;
  return static_cast<uint32_t>(steps < kBuckets - 1.0F ? steps : kBuckets - 1.0F);
}

// Gathers all tokens whose logit is at least `least`, in the order of their numbers.
void gather(std::span<const float> logits, float least, std::vector<Candidate>& out) {
  out.clear();
  for (size_t i = 0; i < logits.size(); i += kLanes) {
    const size_t end = std::min(logits.size(), i + kLanes);
    // Most stretches have none; checking a whole stretch at once is cheap.
    uint32_t any = 0;
    for (size_t k = i; k < end; ++k) any |= logits[k] >= least ? 1U : 0U;
    if (any == 0) continue;
    for (size_t k = i; k < end; ++k) {
      if (logits[k] >= least) out.push_back({logits[k], static_cast<Token>(k)});
    }
  }
}

// Moves `pivot` and the items before it to the front. Returns how many there are.
size_t split(std::span<Candidate> items, const Candidate& pivot) noexcept {
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!before(pivot, items[i])) std::swap(items[kept++], items[i]);
  }
  return kept;
}

Candidate middle(std::span<const Candidate> items) noexcept {
  std::array<Candidate, 3> three = {items.front(), items[items.size() / 2], items.back()};
  std::sort(three.begin(), three.end(), before);
  return three[1];
}

// Returns item number `count` in the order of before(), and reorders `items`. Our own quickselect:
// its steps, and with weights its sums, are the same everywhere.
Candidate nth(std::span<Candidate> items, size_t count) noexcept {
  while (items.size() > 1) {
    const Candidate pivot = middle(items);
    const size_t kept = split(items, pivot);
    if (kept == count) return pivot;
    if (kept > count) {
      // The pivot is the last item kept and not the answer: leave it out, or nothing would shrink.
      items = items.first(kept);
      std::swap(*std::find_if(items.begin(), items.end(),
                              [&](const Candidate& c) { return c.token == pivot.token; }),
                items.back());
      items = items.first(kept - 1);
    } else {
      items = items.subspan(kept);
      count -= kept;
    }
  }
  return items.front();
}

// Returns the last of the fewest first items whose weights reach `share`, or the last of all.
// Reorders `items`.
Candidate heaviest(std::span<Candidate> items, float top, double share) noexcept {
  while (items.size() > 1) {
    const Candidate pivot = middle(items);
    const size_t kept = split(items, pivot);
    double sum = 0.0;  // Without the pivot.
    for (size_t i = 0; i < kept; ++i) {
      if (items[i].token == pivot.token) std::swap(items[i], items[kept - 1]);
      if (i != kept - 1) sum += exp_negative(items[i].logit - top);
    }
    if (sum >= share && kept > 1) {
      items = items.first(kept - 1);
      continue;
    }
    sum += exp_negative(pivot.logit - top);
    if (sum >= share || kept == items.size()) return pivot;
    items = items.subspan(kept);
    share -= sum;
  }
  return items.front();
}

// Drops the items after `last`. The others keep their order.
void cut(std::vector<Candidate>& items, const Candidate& last) {
  std::erase_if(items, [&](const Candidate& item) { return before(last, item); });
}

// How far below the likeliest token to look for candidates first. Most tokens are further away,
// which keeps the selection short. If there are too few, the next distance is tried.
constexpr std::array<float, 4> kReach = {6.0F, 12.0F, 24.0F,
                                         std::numeric_limits<float>::infinity()};

// Gathers the first `count` tokens, or all there are, in the order of their numbers.
void gather_top(std::span<const float> logits, float top, size_t count, Workspace& workspace) {
  std::vector<Candidate>& items = workspace.candidates;
  for (const float reach : kReach) {
    // Impossible tokens are no candidates: the lowest finite logit is the limit.
    gather(logits, std::max(top - reach, std::numeric_limits<float>::lowest()), items);
    if (items.size() >= count) break;
  }
  if (items.size() <= count) return;
  // Selecting reorders; gathering the remaining items restores the order of the numbers.
  const Candidate last = nth(items, count);
  gather(logits, last.logit, items);
  cut(items, last);
}

// Keeps the fewest first tokens whose weights reach `share`: of the candidates, or of all tokens if
// there are none yet.
void keep_share(std::span<const float> logits, float top, double share, bool gathered,
                Workspace& workspace) {
  std::vector<Candidate>& items = workspace.candidates;
  Candidate last{};
  if (gathered) {
    workspace.spare.assign(items.begin(), items.end());
    last = heaviest(workspace.spare, top, share);
    cut(items, last);
    return;
  }
  // Sums over similarly likely tokens show roughly where the share is reached; only the tokens
  // there are examined one by one.
  std::vector<double>& sums = workspace.sums;
  sums.assign(kBuckets, 0.0);
  for (size_t i = 0; i < logits.size(); ++i) {
    sums[bucket_of(logits[i], top)] += workspace.weights[i];
  }
  uint32_t bucket = 0;
  while (bucket + 1 < kBuckets && sums[bucket] < share) share -= sums[bucket++];
  items.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (bucket_of(logits[i], top) == bucket && logits[i] != kNever) {
      items.push_back({logits[i], static_cast<Token>(i)});
    }
  }
  if (items.empty()) {
    // Rounding led past the last token: take all.
    gather(logits, std::numeric_limits<float>::lowest(), items);
    return;
  }
  last = heaviest(items, top, share);
  gather(logits, last.logit, items);
  cut(items, last);
}

// Finds `left` among the weights from `begin` on. Rounding may lead past the end: then returns the
// last possible token.
size_t pick(std::span<const float> weights, size_t begin, double left) noexcept {
  for (size_t i = begin; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0.0) return i;
  }
  size_t last = weights.size() - 1;
  while (last > 0 && weights[last] == 0.0F) --last;
  return last;
}

uint64_t system_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32U | device();
}

}  // namespace

Random::Random(uint64_t seed) noexcept {
  for (uint64_t& word : state_) word = base::next_random(seed);
}

uint64_t Random::next() noexcept {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::unit() noexcept { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

Sampler::Sampler(const Sampling& sampling, uint32_t choice, uint32_t vocabulary)
    : sampling_(sampling),
      vocabulary_(vocabulary),
      seed_((sampling.seed ? *sampling.seed : system_seed()) + choice),
      random_(seed_) {
  if (penalises()) table_.resize(256);
}

bool Sampler::penalises() const noexcept {
  return sampling_.frequency_penalty != 0.0F || sampling_.presence_penalty != 0.0F ||
         (sampling_.repeat_penalty != 1.0F && sampling_.repeat_last != 0);
}

void Sampler::ban(Token token) { sampling_.bias.emplace_back(token, kNever); }

Sampler::Seen& Sampler::seen(Token token) {
  const size_t mask = table_.size() - 1;
  for (size_t i = (token * 0x9E37'79B1U) & mask;; i = (i + 1) & mask) {
    if (table_[i].used && table_[i].token == token) return table_[i];
    if (table_[i].used) continue;
    if (2 * (table_used_ + 1) > table_.size()) {
      grow();
      return seen(token);
    }
    ++table_used_;
    table_[i] = {token, 0, 0, true};
    return table_[i];
  }
}

void Sampler::grow() {
  std::vector<Seen> old(2 * table_.size());
  old.swap(table_);
  table_used_ = 0;
  for (const Seen& entry : old) {
    // Entries outside the window that were not generated are no longer needed.
    if (entry.used && (entry.generated != 0 || entry.recent != 0)) seen(entry.token) = entry;
  }
}

void Sampler::remember(Token token) {
  if (sampling_.repeat_penalty == 1.0F || sampling_.repeat_last == 0) return;
  ++seen(token).recent;
  if (sampling_.repeat_last == std::numeric_limits<uint32_t>::max()) return;
  if (window_.size() < sampling_.repeat_last) {
    window_.push_back(token);
    return;
  }
  --seen(window_[window_next_]).recent;
  window_[window_next_] = token;
  window_next_ = window_next_ + 1 == window_.size() ? 0 : window_next_ + 1;
}

void Sampler::prime(std::span<const Token> prompt) {
  if (!penalises()) return;
  const size_t count = std::min<size_t>(prompt.size(), sampling_.repeat_last);
  for (const Token token : prompt.last(count)) remember(token);
}

void Sampler::accept(Token token) {
  if (!penalises()) return;
  ++seen(token).generated;
  remember(token);
}

// Returns the logits with bias and penalties, or the given ones if there are none.
std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         Workspace& workspace) const {
  if (sampling_.bias.empty() && table_used_ == 0) return logits;
  std::vector<float>& out = workspace.logits;
  out.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : sampling_.bias) {
    if (token >= out.size()) continue;
    out[token] = bias <= -100.0F ? kNever : out[token] + bias;
  }
  for (const Seen& entry : table_) {
    if (!entry.used || entry.token >= out.size()) continue;
    float& logit = out[entry.token];
    if (entry.recent != 0) {
      logit = logit > 0.0F ? logit / sampling_.repeat_penalty : logit * sampling_.repeat_penalty;
    }
    if (entry.generated != 0) {
      logit -= static_cast<float>(entry.generated) * sampling_.frequency_penalty +
               sampling_.presence_penalty;
    }
  }
  return out;
}

Result<Token> Sampler::sample(std::span<const float> logits, Workspace& workspace) {
  if (logits.size() != vocabulary_ || logits.empty()) {
    return Error(Errc::invalid_argument, "not as many logits as the vocabulary has tokens",
                 static_cast<uint32_t>(logits.size()));
  }
  const std::span<const float> values = adjusted(logits, workspace);
  Peak peak = find_peak(values);
  // A banned token's logit may be bad too: check the engine's own values.
  if (values.data() != logits.data() && !peak.bad) peak.bad = find_peak(logits).bad;
  if (peak.bad) return bad_logit(find_peak(logits).bad ? logits : values);
  if (peak.top == kNever) return Error(Errc::out_of_range, "no token is possible");
  if (sampling_.temperature <= 0.0F || sampling_.top_k == 1) return first_at(values, peak.top);
  return draw(values, peak.top, workspace);
}

Token Sampler::draw(std::span<const float> logits, float top, Workspace& workspace) {
  std::vector<Candidate>& items = workspace.candidates;
  const bool by_count = sampling_.top_k != 0 && sampling_.top_k < logits.size();
  const bool by_share = sampling_.top_p < 1.0F;
  const bool by_ratio = sampling_.min_p > 0.0F;
  // Divide once and in doubles; a temperature close to zero is as good as 0.
  const float scale = static_cast<float>(1.0 / std::max<double>(sampling_.temperature, 1e-6));
  std::vector<float>& weights = workspace.weights;

  if (!by_count && !by_share && !by_ratio) {
    // Any token may be drawn: sum the weights in blocks, to find the drawn place by the sums.
    weights.resize(logits.size());
    std::vector<double>& sums = workspace.sums;
    sums.clear();
    double total = 0.0;
    for (size_t i = 0; i < logits.size(); i += kBlock) {
      const size_t n = std::min<size_t>(kBlock, logits.size() - i);
      sums.push_back(weigh_block(logits.subspan(i, n), top, scale, weights.data() + i));
      total += sums.back();
    }
    double left = random_.unit() * total;
    size_t block = 0;
    while (block + 1 < sums.size() && left >= sums[block]) left -= sums[block++];
    return static_cast<Token>(pick(weights, block * kBlock, left));
  }

  if (by_count) {
    gather_top(logits, top, sampling_.top_k, workspace);
  }
  if (by_share) {
    double total = 0.0;
    if (by_count) {
      for (const Candidate& item : items) total += exp_negative(item.logit - top);
    } else {
      weights.resize(logits.size());
      total = weigh(logits, top, weights.data());
    }
    keep_share(logits, top, sampling_.top_p * total, by_count, workspace);
  }
  if (by_ratio) {
    const float least = top + static_cast<float>(std::log(static_cast<double>(sampling_.min_p)));
    if (!by_count && !by_share) {
      gather(logits, least, items);
    } else {
      std::erase_if(items, [&](const Candidate& item) { return item.logit < least; });
    }
  }
  double total = 0.0;
  weights.clear();
  for (const Candidate& item : items) {
    weights.push_back(exp_negative((item.logit - top) * scale));
    total += weights.back();
  }
  const size_t index = pick(weights, 0, random_.unit() * total);
  return items[index].token;
}

Result<TokenChance> chances(std::span<const float> logits, Token chosen, uint32_t count,
                            Workspace& workspace, std::vector<TokenChance>& top) {
  top.clear();
  if (chosen >= logits.size()) {
    return Error(Errc::invalid_argument, "no such token among the logits", chosen);
  }
  const Peak peak = find_peak(logits);
  if (peak.bad) return bad_logit(logits);
  if (peak.top == kNever) return Error(Errc::corrupt, "all logits are -inf");
  const double norm = peak.top + std::log(weigh(logits, peak.top, nullptr));
  const auto chance = [&](Token token, float logit) {
    return TokenChance{token, static_cast<float>(static_cast<double>(logit) - norm)};
  };
  if (count != 0) {
    gather_top(logits, peak.top, count, workspace);
    std::sort(workspace.candidates.begin(), workspace.candidates.end(), before);
    for (const Candidate& item : workspace.candidates) {
      top.push_back(chance(item.token, item.logit));
    }
  }
  return chance(chosen, logits[chosen]);
}

}  // namespace stemma::server
