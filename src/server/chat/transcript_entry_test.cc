// Tests the bytes of transcripts in tiers.
#include "server/chat/transcript_entry.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace stemma::server {
namespace {

ContentKey key_of(uint8_t value) {
  ContentKey key;
  key.bytes.fill(value);
  return key;
}

Transcript sample() {
  Transcript transcript;
  transcript.tokens = {Token{1}, Token{151'645}, Token{7}};
  transcript.message.content = "I will look.";
  transcript.message.reasoning = "Hm.\n";
  transcript.message.calls = {
      {.name = "read", .arguments = R"({"path":"a"})", .id = "x1", .complete = true}};
  transcript.call_ids = {"toolu_1"};
  return transcript;
}

TEST(TranscriptEntry, ReadsWhatItWrote) {
  const Transcript transcript = sample();
  const auto bytes = encode_transcript(key_of(1), key_of(2), transcript);
  const auto read = decode_transcript(bytes);
  ASSERT_TRUE(read);
  const auto& stored = std::get<StoredTranscript>(*read);
  EXPECT_EQ(stored.by_id, key_of(1));
  EXPECT_EQ(stored.by_digest, key_of(2));
  EXPECT_EQ(stored.transcript.tokens, transcript.tokens);
  EXPECT_EQ(stored.transcript.message, transcript.message);
  EXPECT_EQ(stored.transcript.call_ids, transcript.call_ids);
  const auto pointer = decode_transcript(encode_pointer(key_of(3)));
  ASSERT_TRUE(pointer);
  EXPECT_EQ(std::get<TranscriptPointer>(*pointer).to, key_of(3));
}

TEST(TranscriptEntry, WhatIsTooLargeIsNotWritten) {
  Transcript transcript = sample();
  transcript.message.content.assign(kMostTranscriptBytes, 'a');
  EXPECT_TRUE(encode_transcript(key_of(1), key_of(2), transcript).empty());
}

TEST(TranscriptEntry, EveryCutAndEveryLongerTextIsRefused) {
  const auto bytes = encode_transcript(key_of(1), key_of(2), sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_transcript(std::span(bytes).first(size))) << size;
  }
  auto longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(decode_transcript(longer));
  auto other_version = bytes;
  ++other_version[1];
  EXPECT_FALSE(decode_transcript(other_version));
}

TEST(TranscriptEntry, AnyBytesAreReadOrRefused) {
  const auto bytes = encode_transcript(key_of(1), key_of(2), sample());
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    auto changed = bytes;
    for (int n = 0; n < 3; ++n) changed[random() % changed.size()] = static_cast<uint8_t>(random());
    const auto read = decode_transcript(changed);
    if (!read || std::holds_alternative<TranscriptPointer>(*read)) continue;
    // Whatever is read fits into the bytes that were there.
    const auto& stored = std::get<StoredTranscript>(*read);
    EXPECT_LE(stored.transcript.tokens.size() * 4 + stored.transcript.message.content.size(),
              changed.size());
  }
}

}  // namespace
}  // namespace stemma::server
