// Shared by several tests of the loader: a temporary folder, a variable that is restored, the error
// of an action, the log.
#pragma once

#include <gannet/error.h>
#include <gannet/log.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace gannet::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string text = (std::filesystem::temp_directory_path() / "gannet-test-XXXXXX").string();
    if (!mkdtemp(text.data())) ADD_FAILURE() << "no temporary folder";
    path_ = std::filesystem::canonical(text);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, const std::string& line) { text_ += line + "\n"; });
  }
  ~CapturedLog() { set_log_sink({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The Error that `action` throws; a failure of the test when it throws none.
template <class Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace gannet::test
