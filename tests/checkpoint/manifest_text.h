// A manifest's text, made to say something else.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

// A manifest with a right checksum in which `from` was replaced.
inline std::string lying(const std::string& manifest, const std::string& from, const std::string& to) {
  std::string rest = manifest.substr(manifest.find('\n') + 1);
  const size_t at = rest.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in\n" << rest;
  if (at != std::string::npos) rest.replace(at, from.size(), to);
  return checksum_line(rest) + rest;
}

}  // namespace gannet::checkpoint
