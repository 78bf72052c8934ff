// The checks of result_checks.cpp, for the table in checks.cpp.
#pragma once

#include "kit/check.h"

namespace gannet::kit {

void repeat(Subject& subject);
void halves(Subject& subject);
void any_cut(Subject& subject);
void agree(Subject& subject);
void resume(Subject& subject);
void lag(Subject& subject);
void schedule(Subject& subject);
void groups(Subject& subject);
void random_numbers(Subject& subject);
void copy_out(Subject& subject);
void support(Subject& subject);
void nonfinite(Subject& subject);
void two_at_once(Subject& subject);
void evaluation(Subject& subject);
void against_reference(Subject& subject);

}  // namespace gannet::kit
