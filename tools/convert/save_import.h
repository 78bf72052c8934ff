// Writes an imported checkpoint. On failure removes `out` if it was created here and is empty.
//
//   check_import_folder(out, tag);  // first, before anything is read
//   const checkpoint::SaveResult saved = save_import(out, content);
#pragma once

#include <gannet/error.h>

#include <filesystem>
#include <string>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "convert/deepspeed_folder.h"
#include "convert/out_folder.h"
#include "files/io.h"

namespace gannet::convert {

// Throws the errors of check_out_folder(), and Error(kArgument) if `out` is DeepSpeed's, whose `latest` the import would replace.
inline void check_import_folder(const std::string& out, const std::string& tag, const std::string& next = kNameAnother) {
  check_out_folder(out, tag, next);
  if (is_deepspeed_folder(out))
    throw Error(ErrorCode::kArgument, formatted("{} holds checkpoints of DeepSpeed, and Gannet's cannot share its 'latest'", out),
                "name another folder");
}

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
