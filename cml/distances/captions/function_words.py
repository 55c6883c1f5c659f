"""English function words: words of grammar, which say nothing of what a picture shows.

Articles, pronouns, the forms of be, have and do, modal verbs, conjunctions, adverbs of degree, and the most frequent
prepositions. Numbers, the other prepositions of place and words such as "without", "full", "empty", "top" and "side"
are content: two dogs are not three dogs, and a full glass is not an empty one.
"""

_ARTICLES = "a an the"
_DETERMINERS = "some any each every either neither such same own"
_PRONOUNS = (
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers "
    "herself it its itself they them their theirs themselves this that these those who whom whose which what there "
    "here someone something"
)
_AUXILIARIES = (
    "be am is are was were been being have has had having do does did doing done will would shall should can could may "
    "might must 's 'm 're 've 'll 'd"
)
_CONJUNCTIONS = "and or but nor so yet if then than because while when where as that whether although though"
_PREPOSITIONS = "of for to with by from about at in on into onto upon via per"
_ADVERBS = "very too quite rather just also only even still yet already ever again once thus hence however else etc"

FUNCTION_WORDS: frozenset[str] = frozenset(
    " ".join((_ARTICLES, _PRONOUNS, _AUXILIARIES, _CONJUNCTIONS, _PREPOSITIONS, _ADVERBS, _DETERMINERS)).split()
)
