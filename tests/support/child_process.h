// Programs that lie beside the test's own, as processes of their own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace stemma::test {

// Starts it; 127 is its exit code where it is not there.
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

// Waits for it. 128 and the signal, where one ended it.
inline int exit_code(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace stemma::test
