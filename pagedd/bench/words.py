"""Words for prompts of text: common and short, so that most tokenizers have one token for each."""

_TEXT = """
about above after again air all almost along also always and another answer any are around ask
back ball bank base been before began begin best better between big bird black blue boat body
book both boy bring brother build but buy call came can car care carry change child city clear
close cold color come common could country course cut dark day deep did different do does dog
done door down draw drive dry early earth east eat end enough even every eye face fact fall
family far farm fast father feel feet few field find fine fire first fish five fly food foot for
form found four free friend from full game gave get girl give glass go gold good got great green
ground group grow had half hand hard has have he head hear heart heat help her here high him his
hold home horse hot hour house how idea if in into island it just keep kind king know land large
last late laugh lead learn leave left less let letter life light like line list little live long
look love low made make man many map mark may mean men might mile mind money moon more morning
most mother mountain move much music must name near need never new next night north nothing now
number of off often old on once one only open or order other our out over own page paper part
pass people person place plain plan plant play point power press problem pull put question quick
rain ran reach read ready real red rest right river road rock room round rule run said same saw
say school sea second see seem self sentence set seven several she ship short should show side
simple since sing sister sit six size sky sleep slow small snow so some song soon sound south
space stand star start state stay step still stone stood stop story street strong study such
summer sun sure table take talk tell ten than that the their them then there these they thing
think this those thought three through time to together told too took top toward town travel
tree true try turn two under until up us use very voice wait walk wall want war warm was watch
water way we week well went were west what wheel when where which while white who whole why will
wind winter with wonder wood word work world would write year yes yet you young your
"""
WORDS = tuple(_TEXT.split())
