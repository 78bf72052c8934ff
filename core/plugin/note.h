// Reads and checks a plugin file's note, before any of its code runs.
#pragma once

#include <optional>
#include <string>

#include "plugin/plugin.h"

namespace gannet::plugin {

// Whether the fingerprint of a pinned file must match this process. The conformance kit uses kAny,
// since it loads the LibTorch that the file brings.
enum class Fingerprint { kOfThisHost, kAny };

// Reads the file and validates its note. Never throws: for an unusable file, the Candidate records
// the reason.
Candidate read_candidate(const std::string& file, Fingerprint wanted = Fingerprint::kOfThisHost);

// Whether the candidate is a valid shared object that does not claim to be a plugin, such as an
// ordinary library in a plugin folder.
bool is_foreign(const Candidate& candidate);

// The fields in which two fingerprints ("torch=2.11.0,cxx11abi=1,...") differ, as a sentence; "" if
// they are equal. `whose` names the owner of the second fingerprint: "this Gannet's".
std::string fingerprint_difference(const std::string& plugin, const std::string& host, const char* whose);

// The vendor part of the LibTorch in this process: "cuda=13.0"; "" for a CPU-only build.
std::string vendor_of_libtorch();

// The name of a descriptor in the form of a note, in lower case: "optimizer/adam@cpu".
std::string provided_name(const gannet_descriptor& descriptor);

}  // namespace gannet::plugin
