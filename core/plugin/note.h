// The note of a plugin's file: who it is, read before any of its code runs.
#pragma once

#include <optional>
#include <string>

#include "plugin/plugin.h"

namespace gannet::plugin {

// Whether a pinned file's fingerprint must be this process's. The conformance kit has none: it takes the LibTorch that the file
// itself brings.
enum class Fingerprint { kOfThisHost, kAny };

// Reads the file and judges it by its note. Never throws: a file that cannot be used is a Candidate with the reason.
Candidate read_candidate(const std::string& file, Fingerprint wanted = Fingerprint::kOfThisHost);

// It was rejected as a sound shared object that does not say it were a plugin: a library that lies in a folder of plugins.
bool is_foreign(const Candidate& candidate);

// The fields in which two fingerprints ("torch=2.11.0,cxx11abi=1,...") differ, as a sentence; "" when they are equal. `whose`:
// the second is, "this Gannet's".
std::string fingerprint_difference(const std::string& plugin, const std::string& host, const char* whose);

// The vendor's half that the LibTorch in this process has: "cuda=13.0"; "" where it is the CPU's alone.
std::string vendor_of_libtorch();

// "optimizer/adam@cpu" of a descriptor, lower case, as a note lists it.
std::string provided_name(const gannet_descriptor& descriptor);

}  // namespace gannet::plugin
