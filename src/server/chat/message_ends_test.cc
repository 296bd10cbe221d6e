// Tests where conversations may diverge.
#include "server/chat/message_ends.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace stemma::server {
namespace {

using Bytes = std::vector<size_t>;

// A conversation whose text is built piece by piece.
class Conversation {
 public:
  Conversation& says(const std::string& role, const std::vector<std::string>& parts) {
    Message message;
    message.role = role;
    for (const std::string& part : parts) {
      message.parts.push_back({.text = part, .cache_control = {}});
      text.marks.push_back(
          {text.bytes.size(), text.bytes.size() + part.size(), jinja::Origin{number_++}});
      text.bytes += part;
    }
    messages.push_back(std::move(message));
    return *this;
  }
  Conversation& writes(const std::string& own) {
    text.bytes += own;
    return *this;
  }

  jinja::Text text;
  std::vector<Message> messages;

 private:
  uint32_t number_ = 0;
};

TEST(MessageEnds, WithoutAnythingLearnedAMessageEndsWithWhatItSays) {
  Conversation talk;
  talk.writes("<").says("user", {"Hi"}).writes("><").says("user", {"you"}).writes(">");
  EXPECT_EQ(MessageEnds().find(talk.text, talk.messages), (Bytes{1, 3, 8}));
}

TEST(MessageEnds, TextThatIsTheSameForEveryRoleBelongsToTheMessageBefore) {
  MessageEnds ends;
  ends.learn("system", "</s><user>");
  ends.learn("system", "</s><assistant>");
  Conversation talk;
  talk.writes("<system>").says("system", {"Be kind."}).writes("</s><user>").says("user", {"Hi"});
  EXPECT_EQ(ends.find(talk.text, talk.messages), (Bytes{8, 21, 28}));
}

TEST(MessageEnds, TextThatIsNotAsLearnedCountsAsFarAsItIs) {
  MessageEnds ends;
  ends.learn("user", "</s>\n\n<");
  Conversation talk;
  talk.says("user", {"Hi"}).writes("</s>\n").says("user", {"you"});
  EXPECT_EQ(ends.find(talk.text, talk.messages), (Bytes{0, 7, 10}));
}

TEST(MessageEnds, PartsMeetInsideAMessage) {
  Conversation talk;
  talk.writes("<").says("user", {"a book", "a question"}).writes(">");
  EXPECT_EQ(MessageEnds().find(talk.text, talk.messages), (Bytes{1, 7, 17}));
}

TEST(MessageEnds, NamesAreNoMessages) {
  Conversation talk;
  talk.says("user", {"Hi"}).writes(" bob: ").says("user", {"you"});
  const jinja::Mark name{3, 6, jinja::Origin{0xFFFF'FFFEU}};
  talk.text.marks.insert(talk.text.marks.begin() + 1, name);
  MessageEnds ends;
  ends.learn("user", " bob: ");
  EXPECT_EQ(ends.find(talk.text, talk.messages), (Bytes{0, 3, 11}))
      << "what a client calls himself is not the template's";
}

}  // namespace
}  // namespace stemma::server
