#include "cli/trace_record.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "cli/http_stream.h"
#include "replay/sizes.h"
#include "replay/trace_line.h"

namespace stemma::cli {

namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kPatience = 15s;    // For a connection and the head of an answer.
constexpr auto kEndPatience = 5s;  // For the last lines.

volatile std::sig_atomic_t signalled = 0;

int recording_failed(const std::string& why, int code = 1) {
  std::fprintf(stderr, "stemma trace: %s\n", why.c_str());
  return code;
}

// Returns the error message in the server's JSON answer.
std::string message_of(HttpStream& stream) {
  constexpr std::string_view kMessage = R"("message":")";
  constexpr size_t kMost = 64 << 10;
  std::string body;
  const auto until = steady_clock::now() + kEndPatience;
  while (body.size() < kMost && stream.read(body, until) == HttpStream::Next::piece) {
  }
  const size_t at = body.find(kMessage);
  if (at == std::string::npos) return {};
  size_t end = at + kMessage.size();
  while (end < body.size() && body[end] != '"') end += body[end] == '\\' ? 2 : 1;
  return body.substr(at + kMessage.size(), end - at - kMessage.size());
}

std::string refusal(HttpStream& stream, const HttpUrl& url, bool with_key) {
  const std::string who = url.authority();
  switch (stream.status()) {
    case 401:
    case 403:
      return who + (with_key ? " does not take this key" : " wants a key") +
             ": --api-key-file FILE, or the variable STEMMA_API_KEY";
    case 404:
    case 405: return who + " has no /cache/trace: it is no stemma server, or an older one";
    default: break;
  }
  const std::string message = message_of(stream);
  return who + " answers " + std::to_string(stream.status()) +
         (message.empty() ? "; is it a stemma server?" : ": " + message);
}

// The output file, the number of lines in it, and the progress line.
class Written {
 public:
  Written(std::FILE* file, bool show) : file_(file), show_(show) {}

  // Takes whole lines out of `text`. Returns an empty string, or an error message.
  std::string take(std::string& text) {
    size_t begin = 0;
    std::string problem;
    while (problem.empty() && !ended_) {
      const size_t end = text.find('\n', begin);
      if (end == std::string::npos) break;
      problem = line(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
    flush();
    show(false);
    return problem;
  }
  // Writes the last line if the server did not send it.
  void end() {
    if (begun_ && !ended_) write("{\"end\":" + std::to_string(requests_) + "}");
    ended_ = true;
    flush();
    show(true);
  }

  bool begun() const noexcept { return begun_; }
  bool ended() const noexcept { return ended_; }
  int error() const noexcept { return error_; }
  uint64_t requests() const noexcept { return requests_; }
  uint64_t blocks() const noexcept { return blocks_; }

 private:
  std::string line(std::string_view text) {
    if (text.empty() || text == "\r") return {};  // The server is alive and has no news.
    if (const std::string problem = replay::parse_trace_line(text, line_); !problem.empty()) {
      return "a line of it " + problem;
    }
    if (!begun_) {
      if (!line_.has(replay::TraceLine::kStemmaTrace)) return "it does not begin like a trace";
      if (line_.version != 1) return "it is of another version of the format";
      begun_ = true;
    } else if (line_.has(replay::TraceLine::kEnd)) {
      if (line_.end != requests_) return "it lost some requests";
      ended_ = true;
    } else if (line_.has(replay::TraceLine::kPath) && line_.ids.size() == 2) {
      ++requests_;
      blocks_ += line_.ids[1];
    } else {
      return "a line of it has no path";
    }
    write(text);
    return {};
  }
  void write(std::string_view text) {
    const bool whole = std::fwrite(text.data(), 1, text.size(), file_) == text.size() &&
                       std::fputc('\n', file_) != EOF;
    if (!whole && error_ == 0) error_ = errno;
  }
  void flush() {
    if (std::fflush(file_) != 0 && error_ == 0) error_ = errno;
  }
  void show(bool last) {
    const auto now = steady_clock::now();
    if (!show_ || (!last && now - shown_ < 200ms)) return;
    shown_ = now;
    std::fprintf(stderr, "\r%s requests, %s different blocks%s",
                 replay::format_count(requests_).c_str(), replay::format_count(blocks_).c_str(),
                 last ? "\n" : "   ");
  }

  std::FILE* file_;
  bool show_;
  bool begun_ = false;
  bool ended_ = false;
  int error_ = 0;
  uint64_t requests_ = 0;
  uint64_t blocks_ = 0;
  steady_clock::time_point shown_;
  replay::TraceLine line_;
};

// Asks the server to write the lines that still wait for a long request, and to end.
bool ask_to_end(const HttpUrl& url, const std::string& key, const std::string& recording) {
  HttpStream stream;
  return !recording.empty() &&
         stream.open(url, "POST", "/cache/trace/end?recording=" + recording, key, kEndPatience)
             .empty() &&
         stream.status() == 200;
}

// The conditions that end a recording before the server does.
struct Until {
  sigset_t signals;  // Blocked, except while it waits.
  sigset_t open;     // The signals that are blocked while it waits.
  std::optional<steady_clock::time_point> time;

  bool now() const {
    if (signalled != 0 || (time && steady_clock::now() >= *time)) return true;
    // While there is always something to read, it never waits: ask for signals here.
    const timespec none{};
    return sigtimedwait(&signals, nullptr, &none) > 0;
  }
};

// Records until the end. Returns an empty string, or an error message.
std::string record(HttpStream& stream, const HttpUrl& url, const std::string& key, Until until,
                   Written& written) {
  constexpr size_t kMaxLineBytes = size_t{1} << 20U;
  bool ending = false;
  std::string text;
  while (!written.ended() && written.error() == 0) {
    const HttpStream::Next next = stream.read(text, until.time, &until.open);
    if (next == HttpStream::Next::piece) {
      std::string problem = written.take(text);
      if (problem.empty() && text.size() > kMaxLineBytes) problem = "a line of it has no end";
      if (!problem.empty()) return "what " + url.authority() + " sends is no trace: " + problem;
    } else if (next == HttpStream::Next::end || next == HttpStream::Next::broken) {
      if (ending) return {};
      return "the connection to " + url.authority() + " broke; what came before is a whole trace";
    }
    if (!until.now()) continue;
    // A second signal does not wait for the last lines.
    if (ending || !ask_to_end(url, key, stream.header("stemma-recording"))) return {};
    ending = true;
    signalled = 0;
    until.time = steady_clock::now() + kEndPatience;
  }
  return {};
}

}  // namespace

int run_record(const RecordOptions& options) {
  HttpUrl url;
  if (const std::string problem = parse_url(options.url, url); !problem.empty()) {
    return recording_failed(problem, 2);
  }
  std::string key;
  if (!options.api_key_file.empty()) {
    std::ifstream file(options.api_key_file);
    if (!file || !std::getline(file, key))
      return recording_failed("cannot read " + options.api_key_file);
  } else if (const char* const variable = std::getenv("STEMMA_API_KEY"); variable != nullptr) {
    key = variable;
  }
  key = key.substr(0, key.find_first_of("\r\n"));

  HttpStream stream;
  const std::string target = "/cache/trace?block_tokens=" + std::to_string(options.block_tokens);
  if (const std::string problem = stream.open(url, "GET", target, key, kPatience);
      !problem.empty()) {
    return recording_failed(problem);
  }
  if (stream.status() != 200) return recording_failed(refusal(stream, url, !key.empty()));
  if (!stream.header("content-type").starts_with("application/jsonl")) {
    return recording_failed(url.authority() +
                            " answers with something else: it is no stemma server");
  }

  const bool to_file = !options.out.empty() && options.out != "-";
  std::FILE* const file = to_file ? std::fopen(options.out.c_str(), "wb") : stdout;
  const std::string name = to_file ? "'" + options.out + "'" : "standard output";
  if (file == nullptr)
    return recording_failed("cannot write " + name + ": " + std::strerror(errno));

  // From here on a signal ends the recording, not the program. Signals arrive only while we wait.
  Until until;
  sigemptyset(&until.signals);
  sigaddset(&until.signals, SIGINT);
  sigaddset(&until.signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &until.signals, &until.open);
  if (options.seconds != 0)
    until.time = steady_clock::now() + std::chrono::seconds(options.seconds);
  struct sigaction action{};
  action.sa_handler = [](int) { signalled = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);

  std::fprintf(stderr, "recording %s to %s; Ctrl-C ends it\n", url.authority().c_str(),
               name.c_str());
  Written written(file, isatty(2) != 0);
  const std::string problem = record(stream, url, key, until, written);
  written.end();
  int error = written.error();
  if (to_file && std::fclose(file) != 0 && error == 0) error = errno;
  if (error != 0) {
    return recording_failed("cannot write " + name + ": " + std::strerror(error) +
                            "; it lacks its end (replay --lenient reads what is there)");
  }
  if (!written.begun()) return recording_failed(problem.empty() ? "nothing was recorded" : problem);
  if (to_file) {
    std::fprintf(stderr, "%s: %s requests, %s different blocks\n", options.out.c_str(),
                 replay::format_count(written.requests()).c_str(),
                 replay::format_count(written.blocks()).c_str());
  }
  return problem.empty() ? 0 : recording_failed(problem);
}

}  // namespace stemma::cli
