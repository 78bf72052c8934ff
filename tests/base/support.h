// Shared by tests of files and of errors: file contents, and the message of an Error.
#pragma once

#include <gannet/error.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace gannet {

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void write_text(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

// The message of the Error that `body` throws; its code is `code`.
template <class Body>
std::string error_of(ErrorCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), std::string(to_string(code))) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace gannet
