// Writes an imported checkpoint. On failure removes `out` if it was created here and is empty.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "files/io.h"

namespace gannet::convert {

inline checkpoint::SaveResult save_import(const std::string& out, const checkpoint::Content& content) {
  const bool is_new = !files::kind_of(out).exists;
  try {
    return checkpoint::Saver(out, {}).save(content, {});
  } catch (...) {
    std::error_code failure;  // a folder that is not empty remains
    if (is_new) std::filesystem::remove(out, failure);
    throw;
  }
}

}  // namespace gannet::convert
