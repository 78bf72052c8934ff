// The instruction set that Highway picks at run time for the loops of optimizers and norms.
#pragma once

namespace gannet::doctor {

const char* vector_target();  // "AVX3_ZEN4", "AVX2", "NEON"

}  // namespace gannet::doctor
