// What a signal or an exit code usually means, in words for the report of a failed rank.
#pragma once

#include <string>

namespace gannet::launch {

std::string signal_name(int number);  // "SIGTERM"

// "a read or write of memory that is not its own ...", "" where the name says it all.
std::string meaning_of_signal(int number);

// "a user's mistake ..."; "" for a code that means nothing beyond the program itself.
std::string meaning_of_exit_code(int code);

// The signal in a shell's exit code 128 + N, which it gives for a program of its own that was killed; 0 for other codes.
int signal_in_exit_code(int code);

// A failure that would only come again: a user's mistake, or a program that is not there.
bool is_pointless_to_repeat(int exit_code);

}  // namespace gannet::launch
