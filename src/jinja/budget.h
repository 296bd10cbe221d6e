// What a rendering may still use, and how it stops: a Failure is thrown where something is wrong and
// becomes a Problem in template.cc. Nothing else catches it.
//
// Every loop over data of unknown size charges for it, so that no template runs or grows for long:
// a step is a node of the template or an element of a list, and a few bytes that are looked at are
// another one. Bytes are counted when something is made and never given back.
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "jinja/limits.h"
#include "jinja/problem.h"

namespace stemma::jinja {

struct Failure {
  ProblemKind kind;
  std::string message;
  uint32_t line = 0;  // 0: where the renderer or the parser is.
};

[[noreturn]] inline void fail(std::string message) {
  throw Failure{ProblemKind::runtime, std::move(message)};
}
[[noreturn]] inline void fail(ProblemKind kind, std::string message) {
  throw Failure{kind, std::move(message)};
}

// Values that contain each other deeper than this are refused.
inline constexpr uint32_t kMaxValueDepth = 200;

class Budget {
 public:
  explicit Budget(const Limits& limits) : steps_(limits.steps), bytes_(limits.work_bytes) {}

  void step() { steps(1); }
  void steps(uint64_t count) {
    if (count > steps_) fail(ProblemKind::limit, "the template takes too many steps");
    steps_ -= count;
  }
  void bytes(uint64_t count) {
    if (count > bytes_) fail(ProblemKind::limit, "the template takes too much memory");
    bytes_ -= count;
  }
  // So many bytes are compared or searched, or read character by character, which takes longer.
  void look(uint64_t count) { steps(1 + count / 16); }
  void read(uint64_t count) { steps(1 + count / 4); }

  uint64_t steps_left() const noexcept { return steps_; }

 private:
  uint64_t steps_;
  uint64_t bytes_;
};

}  // namespace stemma::jinja
