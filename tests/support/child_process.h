// Runs programs from the test's own folder as separate processes.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace stemma::test {

// Starts the program. A program that does not exist exits with 127.
inline pid_t start_program(const std::string& name, std::vector<std::string> words) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  words.insert(words.begin(), (self.parent_path() / name).string());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(arguments[0], arguments.data());
    std::_Exit(127);
  }
  return child;
}

// Waits for its exit code; 128 plus the signal's number if a signal ended it.
inline int exit_code(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace stemma::test
