// What a rendering may still use, and how it stops: code throws a Failure on an error, and
// template.cc turns it into a Problem. Nothing else catches it.
//
// Every loop over data of unknown size charges the budget, so that no template runs or grows for
// long. Each node of the template, each list element and each few bytes read cost one step. Bytes
// are counted when a value is made and are never given back.
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
  uint32_t line = 0;  // 0: the current line of the renderer or parser.
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
  // look() charges for bytes that are compared or searched; read() for bytes read character by
  // character, which takes longer.
  void look(uint64_t count) { steps(1 + count / 16); }
  void read(uint64_t count) { steps(1 + count / 4); }

 private:
  uint64_t steps_;
  uint64_t bytes_;
};

}  // namespace stemma::jinja
