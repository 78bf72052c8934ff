// Files as torch.save writes them, and as it never would, put together by hand; and a child process to read them in.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "files/support.h"

namespace gannet::files::hand {

// Instructions of a pickle that leave one value on its stack.
using Text = std::string;

inline Text num(int64_t number) { return "I" + std::to_string(number) + "\n"; }
inline Text real(double number) {
  std::string bytes = le(number);
  std::reverse(bytes.begin(), bytes.end());
  return "G" + bytes;
}
inline Text str(const std::string& text) { return "X" + le(static_cast<uint32_t>(text.size())) + text; }
inline Text none() { return "N"; }
inline Text list(const std::vector<Text>& items) {
  Text all = "](";
  for (const Text& item : items) all += item;
  return all + "e";
}
inline Text tuple(const std::vector<Text>& items) {
  Text all = "(";
  for (const Text& item : items) all += item;
  return all + "t";
}
inline Text numbers(const std::vector<int64_t>& items) {
  std::vector<Text> texts;
  for (const int64_t item : items) texts.push_back(num(item));
  return tuple(texts);
}
using Entries = std::vector<std::pair<std::string, Text>>;
inline Text dict(const Entries& entries) {
  Text all = "}(";
  for (const auto& [key, value] : entries) all += str(key) + value;
  return all + "u";
}

struct TensorText {
  std::string key = "0", type = "FloatStorage";
  int64_t storage_numel = 4;
  std::vector<int64_t> sizes = {4}, strides = {1};
  int64_t offset = 0;
};
inline Text tensor(const TensorText& t = {}) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + str("storage") + "ctorch\n" + t.type + "\n" + str(t.key) + str("cpu") +
         num(t.storage_numel) + "tQ" + num(t.offset) + numbers(t.sizes) + numbers(t.strides) + "\x89}tR";
}

inline std::string file(const Text& root, const std::map<std::string, std::string>& storages) {
  HandZip zip;
  zip.entries.push_back({"a/data.pkl", std::string("\x80\x02") + root + "."});
  for (const auto& [key, bytes] : storages) zip.entries.push_back({"a/data/" + key, bytes});
  return zip.bytes();
}

enum class Outcome { kDone, kRefused, kOtherException, kCrash, kHang };

inline const char* to_string(Outcome outcome) {
  const char* const names[] = {"done", "refused", "an exception that is not ours", "a crash", "it did not end in 10 s"};
  return names[static_cast<int>(outcome)];
}

// In a process of its own, which writes no file beyond 1 GiB.
inline Outcome in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const rlimit most{1 << 30, 1 << 30};
    ::setrlimit(RLIMIT_FSIZE, &most);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    int code = 0;
    try {
      body();
    } catch (const Error& error) {
      code = error.code() == ErrorCode::kInternal ? 2 : 1;
      if (code == 2) ::dprintf(2, "%s\n", error.what());
    } catch (const std::exception& error) {
      ::dprintf(2, "%s\n", error.what());
      code = 2;
    } catch (...) {
      code = 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGALRM ? Outcome::kHang : Outcome::kCrash;
  const Outcome outcomes[] = {Outcome::kDone, Outcome::kRefused, Outcome::kOtherException};
  return WEXITSTATUS(status) < 3 ? outcomes[WEXITSTATUS(status)] : Outcome::kCrash;
}

}  // namespace gannet::files::hand
