// Pickles that no torch.save writes: programs, circles, depths, sizes that are not there.
#include "files/pickle.h"

#include "files/pickle_classes.h"
#include "files/support.h"

namespace gannet::files {
namespace {

using namespace std::string_literals;
using testing::AnyOf;
using testing::HasSubstr;

Pickle read(const std::string& text, uint64_t memory_bytes = 64 << 20) {
  const MemoryBytes bytes(text, "hand.pt");
  Cursor cursor(bytes, 0, bytes.size());
  return unpickle(cursor, {memory_bytes});
}
std::string refused(const std::string& text) {
  return error_of(ErrorCode::kUnsupported, [&] { read(text); });
}
std::string corrupted(const std::string& text) {
  return error_of(ErrorCode::kCorrupt, [&] { read(text); });
}
// A tensor of storage '0' that has four floats.
std::string tensor(const std::string& offset, const std::string& sizes, const std::string& strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0000X\x03\0\0\0cpuK\x04tQ"s +
         offset + sizes + strides + "\x89}tR."s;
}

TEST(Pickle, values_of_every_protocol_are_read) {
  EXPECT_EQ(read("I42\n.").root->integer, 42);
  EXPECT_EQ(read("I01\n.").root->boolean, true);
  EXPECT_EQ(read("L-7L\n.").root->integer, -7);
  EXPECT_EQ(read("F-0.5\n.").root->number, -0.5);
  EXPECT_EQ(read("G\x3f\xf0\0\0\0\0\0\0."s).root->number, 1.0);
  EXPECT_EQ(read("S'it\\'s \\x41'\n.").root->text, "it's A");
  EXPECT_EQ(read("V\\u20ac \xe9 \\U0001f600\n.").root->text, "\u20ac \u00e9 \U0001f600");
  EXPECT_EQ(read("\x8a\x01\xff."s).root->integer, -1);
  EXPECT_EQ(read("\x8a\x00."s).root->integer, 0);
  EXPECT_EQ(read("(I1\nI2\ntp0\n0g0\n.").root->items.size(), 2u);
  EXPECT_EQ(read("(dS'a'\nI5\ns.").root->find("a")->integer, 5);
}

TEST(Pickle, code_is_never_run_and_its_name_is_told) {
  const auto is_record = [](const std::string& text, const std::string& name) {
    const Pickle pickle = read(text);
    EXPECT_EQ(pickle.root->kind, Object::Kind::kRecord) << name;
    EXPECT_EQ(pickle.root->text, name);
    return pickle.root->items.size();
  };
  EXPECT_EQ(is_record("cos\nsystem\n(S'touch /tmp/gannet-pickle-ran'\ntR.", "os.system"), 1u);
  EXPECT_FALSE(fs::exists("/tmp/gannet-pickle-ran"));
  is_record(
      "\x8c\x08"
      "builtins\x8c\x07"
      "getattr\x93.",
      "builtins.getattr");
  is_record("c__builtin__\neval\n.", "builtins.eval");
  is_record("cdeepspeed.x;import os\nsystem\n.", "deepspeed.x;import os.system");
  // The result of a call is called: functools.partial, a method that getattr found.
  EXPECT_EQ(is_record("cfunctools\npartial\n(cos\nsystem\ntR(I1\ntR.", "functools.partial"), 1u);
  EXPECT_TRUE(why_not_read("torch._utils._rebuild_sparse_tensor"));
  EXPECT_FALSE(why_not_read("os.system") || why_not_read("numpy.core.multiarray._reconstruct"));
  EXPECT_THAT(refused("(ios\nsystem\n."), HasSubstr("instruction 0x69"));
  EXPECT_THAT(refused("\x82\x01."), HasSubstr("instruction 0x82"));
  EXPECT_THAT(corrupted("\xff."), HasSubstr("no pickle has the instruction 0xff"));
}

TEST(Pickle, a_container_does_not_contain_itself) {
  EXPECT_THAT(refused("]2a."), HasSubstr("into itself"));
  EXPECT_THAT(refused("]q\0h\0a."s), HasSubstr("into itself"));
  EXPECT_THAT(refused("]q\0]h\0ah\0h\0a."s), HasSubstr("put into another, or into itself"));
  EXPECT_THAT(refused("}q\0X\1\0\0\0ah\0s."s), HasSubstr("into itself"));
  // An object that refers to itself is left without its attributes, and is marked.
  for (const std::string text : {"cdeepspeed\nA\n)Rq\0}X\1\0\0\0ah\0sb."s, "cx\nList\n)Rq\0h\0a."s}) {
    const Pickle pickle = read(text);
    EXPECT_TRUE(pickle.root->is_cut && pickle.root->entries.empty() && pickle.root->items.empty());
  }
  // Sharing is legal.
  EXPECT_EQ(read("]q\0000(h\0h\0l."s).root->items.size(), 2u);
}

TEST(Pickle, a_million_lists_in_one_another_are_refused_before_any_stack_is) {
  EXPECT_THAT(refused(repeated("]", 1'000'000) + repeated("a", 999'999) + "."), HasSubstr("more than 64.0 MiB"));
  EXPECT_THAT(refused(repeated("]", 100'000) + repeated("a", 99'999) + "."), HasSubstr("more than 500 deep"));
  EXPECT_THAT(refused(")" + repeated("\x85", 501) + "."), HasSubstr("more than 500 deep"));
  EXPECT_EQ(read(")" + repeated("\x85", 500) + ".").root->items.size(), 1u);
}

TEST(Pickle, repetition_does_not_fill_memory) {
  std::string doubling = "]q\0"s;  // each list holds the former one's items twice: 2^60 of them
  for (int i = 0; i < 60; ++i) doubling += "0(h\0h\0tq\0"s;
  EXPECT_EQ(read(doubling + ".").root->items.size(), 2u);  // shared, so it is small
  const std::string many = "(" + repeated("N", 100'000) + "tq\0"s + repeated("0cdeepspeed\nA\nh\0R"s, 1000) + ".";
  EXPECT_THAT(refused(many), HasSubstr("takes more than 64.0 MiB"));
  EXPECT_THAT(refused(repeated("]", 400'000) + "."), HasSubstr("takes more than 64.0 MiB"));
  EXPECT_THAT(corrupted("(" + repeated("2", 1000) + "."), HasSubstr("no"));
}

TEST(Pickle, lengths_are_compared_with_what_is_left_before_they_are_believed) {
  EXPECT_THAT(corrupted("\x8b\xff\xff\xff\x7f"
                        "ab."),
              HasSubstr("an integer of 2147483647 bytes begins here, and 3 bytes are left"));
  EXPECT_THAT(corrupted("\x8b\xff\xff\xff\xff"
                        "ab."),
              HasSubstr("negative length"));
  EXPECT_THAT(corrupted("X\xff\xff\xff\xff"
                        "ab."),
              HasSubstr("a string of 4294967295 bytes"));
  EXPECT_THAT(corrupted("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
                        "ab."),
              HasSubstr("bytes are left"));
  EXPECT_THAT(corrupted("\x95\xff\xff\xff\xff\0\0\0\0."s), HasSubstr("a frame of 4294967295 bytes"));
  EXPECT_THAT(corrupted("Nr\xff\xff\xff\xff."), HasSubstr("memoized as number 4294967295"));
  EXPECT_THAT(corrupted("h\7."), HasSubstr("the remembered value 7 is wanted"));
  EXPECT_THAT(corrupted("S'no end"), HasSubstr("has no end"));
  EXPECT_THAT(corrupted("N"), HasSubstr("0 bytes are left"));
  EXPECT_THAT(corrupted(""), HasSubstr("at byte 0"));
}

TEST(Pickle, a_stack_that_does_not_work_out_is_refused) {
  for (const char* text : {".",
                           "0.",
                           "a.",
                           "R.",
                           "NR.",
                           "(a.",
                           "t.",
                           "NN.",
                           "N(.",
                           "(Ns.",
                           "(Nd.",
                           "Q.",
                           "NQ.",
                           "b.",
                           "N}b.",
                           "\x85.",
                           "2.",
                           "1.",
                           "]Nu.",
                           "N(Nu.",
                           "](Nu.",
                           "cdeepspeed\nA\n}b.",
                           "ctorch\nFloatStorage\n)R.",
                           "ctorch\nfloat32\n)R."})
    corrupted(text);
}

TEST(Pickle, a_key_that_comes_twice_is_refused) {
  EXPECT_THAT(corrupted("}(X\1\0\0\0aNX\1\0\0\0aNu."s), HasSubstr("the key 'a' twice"));
}

TEST(Pickle, persistent_ids_are_a_storages_or_refused) {
  const std::string type = "ctorch\nFloatStorage\n", key = "X\1\0\0\0000"s;
  EXPECT_EQ(read("(X\7\0\0\0storage"s + type + key + key + "K\4tQ.").root->tensor.sizes.at(0), 4);
  EXPECT_THAT(corrupted("(X\7\0\0\0storage"s + type + key + key + "J\xff\xff\xff\xfftQ."), HasSubstr("-1 elements"));
  EXPECT_THAT(corrupted("(X\7\0\0\0storage"s + type + key + key + "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ftQ."),
              HasSubstr("9223372036854775807 elements"));
  EXPECT_THAT(corrupted("(X\7\0\0\0storage"s + key + key + key + "K\4tQ."), HasSubstr("not its class"));
  EXPECT_THAT(corrupted("(X\5\0\0\0otherK\4tQ."s), HasSubstr("begins with 'other'"));
  EXPECT_THAT(corrupted(")Q."), HasSubstr("begins with 'storage'"));
  EXPECT_THAT(refused("(X\6\0\0\0moduleNNNtQ."s), HasSubstr("a whole module"));
  EXPECT_THAT(refused("(X\7\0\0\0storage"s + type + key + key + "K\4(NNNttQ."), HasSubstr("PyTorch before 0.4"));
  EXPECT_THAT(corrupted("((X\7\0\0\0storage"s + type + key + key + "K\4tQ(X\7\0\0\0storage"s + type + key + key + "K\5tQt."),
              HasSubstr("16 bytes in one place and 20"));
}

TEST(Pickle, tensors_lie_within_their_storage_whatever_their_strides) {
  EXPECT_EQ(read(tensor("K\0"s, "K\2K\2\x86", "K\2K\1\x86")).root->tensor.numel(), 4);
  EXPECT_EQ(read(tensor("K\3"s, "K\7K\1\x86", "K\0M\xff\xff\x86"s)).root->tensor.numel(), 7);  // expanded
  EXPECT_EQ(read(tensor("K\x63", "K\0\x85"s, "K\1\x85")).root->tensor.numel(), 0);
  EXPECT_THAT(corrupted(tensor("K\1", "K\2K\2\x86", "K\2K\1\x86")),
              HasSubstr("shape [2, 2] reaches past the 4 elements of its storage '0'"));
  EXPECT_THAT(corrupted(tensor("K\4", ")", ")")), HasSubstr("reaches past"));
  EXPECT_THAT(corrupted(tensor("J\xff\xff\xff\xff", ")", ")")), HasSubstr("begins at element -1"));
  EXPECT_THAT(corrupted(tensor("K\0"s, "J\xff\xff\xff\xff\x85", "K\1\x85")), HasSubstr("integers from 0"));
  EXPECT_THAT(corrupted(tensor("K\0"s, "K\2\x85", "J\xff\xff\xff\xff\x85")), HasSubstr("integers from 0"));
  EXPECT_THAT(corrupted(tensor("K\0"s, "K\2\x85", ")")), HasSubstr("1 sizes and 0 strides"));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x3f";
  EXPECT_THAT(corrupted(tensor("K\0"s, huge + huge + "\x86", "K\0K\0\x86"s)), HasSubstr("more elements than can be counted"));
  EXPECT_THAT(corrupted(tensor("K\0"s, huge + "K\0\x86"s + huge + "0", "K\0K\0\x86"s)),
              HasSubstr("more elements than can be counted"));
  EXPECT_THAT(corrupted(tensor("K\0"s, "M\0\1\x85"s, huge + "\x85")), HasSubstr("reaches past"));
  EXPECT_THAT(corrupted(tensor(huge, "K\2\x85", huge + "\x85")), HasSubstr("reaches past"));
}

}  // namespace
}  // namespace gannet::files
