// CRC-32C (Castagnoli, RFC 3720 B.4), used in the frames of TensorBoard's files.
#pragma once

#include <cstdint>
#include <string_view>

namespace gannet::observe {

uint32_t crc32c(std::string_view bytes);

}  // namespace gannet::observe
